"""A third kind of source, in one module: a tar file of a data folder, read as it lies. Its row in the table is `TAR`.

It is a toy: a partition's segments are read whole. What it shows is what a kind must say of itself, and that this is all.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.model import EARLIEST, LATEST, READ_UNCOMMITTED, Isolation, TopicPartition
from tidelog.reader.time_search import FoundOffset
from tidelog.records.batch import iter_headers
from tidelog.records.records import first_record_at
from tidelog.sources.bounds import LOG_END, TimeRange
from tidelog.sources.offset_cuts import OffsetPiece
from tidelog.sources.offset_source import OffsetSource
from tidelog.sources.opening import Address, Kind
from tidelog.sources.reading import Reading
from tidelog.sources.report import ScanReport
from tidelog.sources.source import Ends
from tidelog.sources.split import LocatedBatch, Split

PREFIX = "tar:"


def is_tar(address: Address) -> bool:
    return isinstance(address, str) and address.startswith(PREFIX)


TAR = Kind(
    "a tar file",
    is_tar,
    f"{__name__}:TarSource",
    settled=lambda address: f"{PREFIX}{Path(address.removeprefix(PREFIX)).absolute()}",
)


def batches_of(address: str, key: TopicPartition) -> Iterator[LocatedBatch]:
    with tarfile.open(address.removeprefix(PREFIX)) as archive:
        of_key = [name for name in archive.getnames() if name.startswith(f"{key.topic}-{key.partition}/")]
        for name in sorted(of_key):
            file = archive.extractfile(name)
            if name.endswith(".log") and file is not None:
                data = memoryview(file.read())
                yield from ((header, data, header.position) for header in iter_headers(data, 0, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TarSplit(Split):
    address: str

    def batches(self, reading: Reading, report: ScanReport) -> Iterator[LocatedBatch]:
        for header, data, index in batches_of(self.address, TopicPartition(self.topic, self.partition)):
            if header.last_offset >= self.start_offset and header.base_offset < self.end_offset:
                report.batches += 1
                report.bytes_read += header.size
                yield header, data, index


class TarSource(OffsetSource):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        with tarfile.open(address.removeprefix(PREFIX)) as archive:
            names = {Path(name).parts[0].rpartition("-") for name in archive.getnames() if name.endswith(".log")}
        self._keys = sorted(TopicPartition(topic, int(number)) for topic, _, number in names)

    def topics(self, names: Collection[str] | None = None) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for key in self._keys:
            if names is None or key.topic in names:
                found.setdefault(key.topic, []).append(key.partition)
        return found

    def partitions(self, topic: str) -> list[int]:
        if topic not in self.topics():
            raise UnknownTopicOrPartitionError(f"no topic {topic!r}", path=self.address)
        return self.topics()[topic]

    def ends(
        self, keys: Collection[TopicPartition], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, Ends]:
        found: dict[TopicPartition, Ends] = {}
        for key in keys:
            headers = [header for header, _, _ in batches_of(self.address, key)]
            start, end = headers[0].base_offset, headers[-1].next_offset
            found[key] = Ends(start, end, end)
        return found

    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        return {key: self._find(key, target) for key, target in targets.items()}

    def _find(self, key: TopicPartition, target: int) -> FoundOffset | None:
        if target in (EARLIEST, LATEST):
            held = self.ends([key])[key]
            return FoundOffset(held.log_start_offset if target == EARLIEST else held.end_offset, -1, -1)
        for header, data, index in batches_of(self.address, key):
            first = first_record_at(header, data[index : index + header.size], target)
            if first is not None:
                return FoundOffset(*first, header.leader_epoch)
        return None

    def split(self, piece: OffsetPiece, time: TimeRange, isolation: Isolation) -> TarSplit:
        return TarSplit(
            address=self.address,
            topic=piece.key.topic,
            partition=piece.key.partition,
            start_offset=piece.start_offset,
            end_offset=piece.end_offset,
            time=time,
            size_bytes=piece.size_bytes,
        )
