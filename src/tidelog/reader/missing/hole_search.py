"""Checks a broker's logs soon after startup, and warns about missing offsets and about segments whose names do not match their
batches.

A broker serves such a log as Kafka does, without an error: consumers continue after the gap. So a warning names the offsets. One
thread checks each log once, with `Log.missing` and `Log.check_names`. The thread reads only the ends and first headers of
segments. It reads all headers only if a log has a gap and its settings do not say that it is compacted. The thread pauses after
each log. Neither startup nor clients wait for it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import CorruptBatchError, TidelogError
from tidelog.formats.files import Notices
from tidelog.formats.paths.file_path import FilePath

if TYPE_CHECKING:
    from tidelog.reader.log_dir import LogDir

logger = logging.getLogger("tidelog.serve")

FIRST_REST_S = 0.2
"""The pause (s) before the first log, so that the first requests after a start need not share the interpreter with the
listing.
"""

REST_S = 0.002
"""The pause (s) after each log, so that the thread uses only a fraction of a processor."""


class _NoticesOf(Notices):
    """Logs the notices of a search, but only while the search runs. After its end the folder may be deleted, and missing files
    mean nothing.
    """

    def __init__(self, stopping: threading.Event) -> None:
        super().__init__()
        self._stopping = stopping

    def note(self, path: FilePath, text: str) -> None:
        if not self._stopping.is_set():
            super().note(path, text)


class HoleSearch:
    """A check of a data folder on a thread, which runs from `start` until `stop` is called or the last log is checked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelog-holes", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it: it only reads."""
        self._stopping.set()

    def _run(self) -> None:
        if self._stopping.wait(FIRST_REST_S):
            return
        from tidelog.reader.log_dir import LogDir

        try:
            log_dir = LogDir(self._directory)
            keys = [(topic, partition) for topic, partitions in log_dir.topics().items() for partition in partitions]
        except (TidelogError, OSError):
            return  # The data folder has no partitions.
        for topic, partition in keys:
            if self._stopping.wait(REST_S):
                return
            self._look_at(log_dir, topic, partition)

    def _look_at(self, log_dir: LogDir, topic: str, partition: int) -> None:
        try:
            with log_dir.log(topic, partition) as log:
                log.notices = notices = _NoticesOf(self._stopping)
                for segment in log.segments:
                    segment.notices = notices
                try:
                    log.check_names()
                except CorruptBatchError as error:
                    if not self._stopping.is_set():
                        logger.error("%s: a reader that trusts this file name misses records", error)
                # The checkpoints describe the log's end before startup, whereas the broker continued from the actual end.
                found = [one for one in log.missing() if one.kind in ("segment", "head")]
        except (TidelogError, OSError):
            return  # Deleted since, or damaged: loading has reported that, or reading will.
        for one in found:
            logger.warning("%s; consumers will skip these offsets without an error", one)
