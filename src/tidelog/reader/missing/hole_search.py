"""What a broker logs soon after its start: which offsets no segment holds, in the middle of a log or before its first segment,
and which segments' names do not fit their batches.

A broker serves such a log as Kafka does, without an error: consumers continue after the hole. So a warning names the offsets. One
thread looks once, with the reader of folders (`Log.missing`, `Log.check_names`): at the ends and first headers of segments alone,
but for a log that has a hole and of which no setting says that it is compacted: its headers are read. It rests after each log.
Neither the start nor clients wait.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import CorruptBatchError, TidelogError
from tidelog.formats.files import Notices

if TYPE_CHECKING:
    from tidelog.reader.log_dir import LogDir

logger = logging.getLogger("tidelog.serve")

REST_S = 0.002
"""After each log: the thread takes no more than a part of a processor."""


class _NoticesOf(Notices):
    """Those of a search, as long as it continues: after that the folder may go, and a file that is gone means nothing."""

    def __init__(self, stopping: threading.Event) -> None:
        super().__init__()
        self._stopping = stopping

    def note(self, path: Path, text: str) -> None:
        if not self._stopping.is_set():
            super().note(path, text)


class HoleSearch:
    """A look through the folder on a thread of its own, from `start` to `stop` or the last log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelog-holes", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end, and do not wait for it: the thread only reads."""
        self._stopping.set()

    def _run(self) -> None:
        from tidelog.reader.log_dir import LogDir

        try:
            log_dir = LogDir(self._directory)
            keys = [(topic, partition) for topic, partitions in log_dir.topics().items() for partition in partitions]
        except (TidelogError, OSError):
            return  # An empty folder.
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
                        logger.error("%s: who goes by that name misses records", error)
                # What checkpoints say of a log's end is of before the start: the broker goes on from where the log ends.
                found = [one for one in log.missing() if one.kind in ("segment", "head")]
        except (TidelogError, OSError):
            return  # Deleted since, or damaged: loading has said so, or reading will.
        for one in found:
            logger.warning("%s; consumers go on after them without an error", one)
