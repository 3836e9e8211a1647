"""Where `make test` keeps its files: in memory, if there is plenty of it and nobody has said where.

Tests make and remove hundreds of thousands of small files. On a disk, that takes a quarter of their processor time and more,
and a machine's programs wait for one another in its file system. Tests that need a real file system have `disk_path`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from studies.work_dir import memory_with_room
from tests import shares

ROOT = "PYTEST_DEBUG_TEMPROOT"
"""The environment variable that says where pytest makes the folders of its runs."""


def place_folders(config: pytest.Config) -> None:
    """Let this run's temporary folders be in memory, if it is `make test`. Call it before the first is made."""
    memory = memory_with_room()
    if shares.is_shared(config) and memory is not None and not config.getoption("basetemp"):
        os.environ.setdefault(ROOT, str(memory))


@pytest.fixture(scope="session", autouse=True)
def root_of_nested_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A pytest that a test starts has its temporary folders among this run's.

    In the user's, it would remove those of earlier runs before it ends, which takes minutes on a slow disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT, str(tmp_path_factory.mktemp("nested")))
        yield


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder in the file system of the machine's temporary files, which has what one in memory lacks, as RWF_NOWAIT."""
    with tempfile.TemporaryDirectory(prefix="tidelog-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
