"""A log that nobody uses any more is freed at once: a garbage collection of thousands of deleted logs would block the loop."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from tests.storage.partition_logs import open_log


def test_a_closed_log_is_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    gc.disable()
    try:
        log = open_log(tmp_path, None)
        seen = weakref.ref(log)
        log.close()
        del log
        assert seen() is None
    finally:
        gc.enable()
