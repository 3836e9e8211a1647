"""What a load reads from: a data folder, or brokers. What `bounds` asks of either.

| asked | a folder | brokers |
|---|---|---|
| topics and partitions | the folders' names | Metadata |
| log start, log end | checkpoints and files; the log end | ListOffsets; the high watermark or the last stable offset |
| the first offset for a time | `tidelog.reader.time_search` | ListOffsets: their own answer |

Logs of a folder are opened one by one, where a bound asks for it; brokers are asked for all partitions at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tidelog.client.connections.cluster import Cluster
from tidelog.client.reading.offsets import NotFound, OffsetAnswer, list_offsets
from tidelog.errors import ProtocolError, UnsupportedForMessageFormatError
from tidelog.model import EARLIEST, LATEST, Isolation, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing import MissingOffsets
from tidelog.reader.time_search import find_offset
from tidelog.spark.options import ReadOptions


class Partition(Protocol):
    """A partition as bounds see it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int:
        """The end of what can be read."""

    def find(self, timestamp: int) -> int | None:
        """Return the first offset whose timestamp reaches this one. Raises UnsupportedForMessageFormatError."""

    def missing_before(self, offset: int | None) -> list[MissingOffsets]:
        """Return what the place lacks below an offset, None: anywhere; a search by time would perhaps have ended there."""


class Topics(Protocol):
    """Who knows which topics there are."""

    def topics(self) -> dict[str, list[int]]:
        """Return the partitions of each topic."""


class Place(Topics, Protocol):
    """Where topics are."""

    def open(self, partitions: Sequence[tuple[str, int]], times: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[Partition]:
        """Yield each of these partitions. `times` are those that `find` will be called with, where it will be."""


class FolderPlace:
    """A data folder."""

    def __init__(self, log_dir: LogDir, isolation: Isolation) -> None:
        self.log_dir = log_dir
        self._isolation = isolation

    def topics(self) -> dict[str, list[int]]:
        return self.log_dir.topics()

    def open(self, partitions: Sequence[tuple[str, int]], times: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[Partition]:
        for topic, partition in partitions:
            yield _FolderPartition(self.log_dir.log(topic, partition), self._isolation)


class _FolderPartition:
    def __init__(self, log: Log, isolation: Isolation) -> None:
        self._log = log
        self._isolation = isolation
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = log.log_end_offset

    def find(self, timestamp: int) -> int | None:
        found = find_offset(self._log, timestamp, self._isolation)
        return None if found is None else found.offset

    def missing_before(self, offset: int | None) -> list[MissingOffsets]:
        return self._log.missing(0, offset)


class BrokerPlace:
    """Brokers of one cluster."""

    def __init__(self, cluster: Cluster, isolation: Isolation) -> None:
        self.cluster = cluster
        self._isolation = isolation

    def topics(self) -> dict[str, list[int]]:
        return {name: list(topic.partitions) for name, topic in self.cluster.topics().items()}

    def open(self, partitions: Sequence[tuple[str, int]], times: Sequence[Mapping[tuple[str, int], int]]) -> Iterator[Partition]:
        keys = [TopicPartition(*partition) for partition in partitions]
        ends = list_offsets(self.cluster, dict.fromkeys(keys, LATEST), self._isolation)
        starts = list_offsets(self.cluster, dict.fromkeys(keys, EARLIEST))
        answers: dict[tuple[TopicPartition, int], OffsetAnswer] = {}
        for asked in times:
            targets = {key: asked[key] for key in keys if key in asked}
            found = list_offsets(self.cluster, targets, self._isolation)
            answers.update(((key, targets[key]), answer) for key, answer in found.items())
        for key in keys:
            yield _BrokerPartition(str(self.cluster), key, self._end(starts[key]), self._end(ends[key]), answers)

    def _end(self, answer: OffsetAnswer) -> int:
        if isinstance(answer, NotFound):
            raise ProtocolError("the broker tells no end of a log", path=str(self.cluster))
        return answer.offset


class _BrokerPartition:
    def __init__(
        self, place: str, key: TopicPartition, start: int, end: int, answers: Mapping[tuple[TopicPartition, int], OffsetAnswer]
    ) -> None:
        self._place = place
        self._key = key
        self._answers = answers
        self.log_start_offset = start
        self.log_end_offset = end

    def find(self, timestamp: int) -> int | None:
        answer = self._answers[self._key, timestamp]
        if answer is NotFound.NO_TIMESTAMPS:
            raise UnsupportedForMessageFormatError(f"{self._key.topic}-{self._key.partition}: {answer.value}", path=self._place)
        return None if isinstance(answer, NotFound) else answer.offset

    def missing_before(self, offset: int | None) -> list[MissingOffsets]:
        return []


@contextlib.contextmanager
def place_of(options: ReadOptions) -> Iterator[FolderPlace | BrokerPlace]:
    """Open what a load reads from. Raises DataDirNotFoundError, BrokerUnreachableError."""
    if options.brokers is None:
        assert options.path is not None
        yield FolderPlace(LogDir(options.path, skip_damaged=options.skip_damaged), options.isolation)
        return
    from tidelog.sources.brokers import scan_cluster

    cluster = scan_cluster(options.brokers)
    try:
        yield BrokerPlace(cluster, options.isolation)
    finally:
        cluster.close()
