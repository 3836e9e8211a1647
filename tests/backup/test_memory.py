"""What a backup holds in memory: one piece of each partition that is being read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.backup.model_source import ModelSource
from tidelog.backup.layout import DATA
from tidelog.backup.target import FolderTarget
from tidelog.capture.capture import Capture
from tidelog.capture.capture_source import FoundBatch
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition

COUNT = 20


def test_a_partition_is_written_before_the_next_one_is_read(tmp_path: Path) -> None:
    """A thousand partitions with a piece each would otherwise need 32 GB."""
    target = FolderTarget(tmp_path)
    written: list[int] = []

    class Watched(ModelSource):
        def read(self, key: TopicPartition, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
            written.append(sum(name.endswith(".log") for name, _ in target.list(DATA)))
            return super().read(key, start_offset, end_offset)

    source = Watched(1)
    source.is_busy = False
    source.known = {}
    for number in range(COUNT):
        source.create(f"topic-{number}")
        for partition in source.known[f"topic-{number}"].partitions:
            source._records(partition)
    Capture(source, target, ManualClock(source.now)).take()
    assert written == list(range(len(written)))
    assert len(written) >= COUNT
