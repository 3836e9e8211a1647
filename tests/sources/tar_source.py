"""A third kind of source, in one module: a tar file of a data folder, read as it lies. Its row in the table is `TAR`.

It is a toy: a partition's segments are read whole, at every question. What it shows is what a kind must say of itself, and that
this is all. The high watermark is that of the checkpoint in the archive; without one, or a line of the partition in it, it is the
log's end. read_committed is refused where a partition has transactions: they are not looked at. What else it does not know
(time maps, damage, groups), `sources` refuses for it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidelog.errors import (
    InvalidArgumentError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from tidelog.formats.names import HIGH_WATERMARK_CHECKPOINT, LOG_SUFFIX, log_dir_name, offset_from_file_name
from tidelog.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    READ_UNCOMMITTED,
    Isolation,
    TopicPartition,
)
from tidelog.reader.time_search import FoundOffset
from tidelog.records.batch import iter_headers
from tidelog.records.records import first_record_at, max_timestamp_record
from tidelog.sources.bounds import HIGH_WATERMARK, LOG_END, TimeRange
from tidelog.sources.offset_cuts import OffsetPiece
from tidelog.sources.offset_source import OffsetSource
from tidelog.sources.opening import Address, Kind
from tidelog.sources.reader_resources import LocatedBatch, ReaderResources
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.source import Ends
from tidelog.sources.split import Split

PREFIX = "tar:"


def is_tar(address: Address) -> bool:
    return isinstance(address, str) and address.startswith(PREFIX)


TAR = Kind(
    "a tar file",
    is_tar,
    f"{__name__}:TarSource",
    settled=lambda address: f"{PREFIX}{Path(address.removeprefix(PREFIX)).absolute()}",
)


def segments_of(address: str, key: TopicPartition) -> Iterator[tuple[int, str, memoryview]]:
    """Yield each segment's base offset, name and bytes, in order."""
    with tarfile.open(address.removeprefix(PREFIX)) as archive:
        for path in sorted(Path(name) for name in archive.getnames()):
            file = archive.extractfile(path.as_posix()) if path.suffix == LOG_SUFFIX else None
            if file is not None and path.parent.name == log_dir_name(*key):
                yield offset_from_file_name(path.name), path.as_posix(), memoryview(file.read())


def batches_of(address: str, key: TopicPartition) -> Iterator[LocatedBatch]:
    for _, name, data in segments_of(address, key):
        yield from ((header, data, header.position) for header in iter_headers(data, 0, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TarSplit(Split):
    address: str

    def batches(self, reading: ReaderResources, report: ScanReport) -> Iterator[LocatedBatch]:
        for header, data, index in batches_of(self.address, TopicPartition(self.topic, self.partition)):
            if header.last_offset >= self.start_offset and header.base_offset < self.end_offset:
                report.batches += 1
                report.bytes_read += header.size
                yield header, data, index


class TarSource(OffsetSource):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        with tarfile.open(address.removeprefix(PREFIX)) as archive:
            paths = [Path(name) for name in archive.getnames()]
            at = next((path.as_posix() for path in paths if path.name == HIGH_WATERMARK_CHECKPOINT), None)
            file = None if at is None else archive.extractfile(at)
            lines = [] if file is None else file.read().decode().splitlines()[2:]
        names = {path.parent.name.rpartition("-") for path in paths if path.suffix == LOG_SUFFIX}
        self._keys = sorted(TopicPartition(topic, int(number)) for topic, _, number in names if number.isdecimal())
        entries = (line.split() for line in lines)
        self._high_watermarks = {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in entries}

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
            if key not in self._keys:
                continue
            self._check(key, isolation)
            segments = list(segments_of(self.address, key))
            start = log_end = segments[0][0]
            for base_offset, name, data in segments:
                log_end = max([base_offset, *(header.next_offset for header in iter_headers(data, 0, name))])
            end = min(log_end, self._high_watermarks.get(key, log_end)) if until == HIGH_WATERMARK else log_end
            found[key] = Ends(start, max(start, end), log_end)
        return found

    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        return {key: self._find(key, target, isolation, until) for key, target in targets.items()}

    def _find(self, key: TopicPartition, target: int, isolation: Isolation, until: str) -> FoundOffset | None:
        if key not in self._keys:
            raise UnknownTopicOrPartitionError(f"no partition {log_dir_name(*key)}", path=self.address)
        held = self.ends([key], isolation, until)[key]
        if target in (EARLIEST, EARLIEST_LOCAL, LATEST):
            return FoundOffset(held.end_offset if target == LATEST else held.log_start_offset, -1, -1)
        if target < 0 and target != MAX_TIMESTAMP:
            raise UnsupportedVersionError("a tar file has no such place", path=self.address, found=target)
        best: FoundOffset | None = None
        magic = None
        for header, data, index in batches_of(self.address, key):
            magic = header.magic
            look = max_timestamp_record if target == MAX_TIMESTAMP else partial(first_record_at, timestamp=target)
            found = look(header, data[index : index + header.size])
            if found is not None and (best is None or (target == MAX_TIMESTAMP and found[1] > best.timestamp)):
                best = FoundOffset(*found, header.leader_epoch)
        if magic == 0:
            raise UnsupportedForMessageFormatError("message format v0 has no timestamps", path=self.address)
        return best if best is not None and best.offset < held.end_offset else None

    def _check(self, key: TopicPartition, isolation: Isolation) -> None:
        if isolation != READ_UNCOMMITTED and any(header.is_transactional for header, _, _ in batches_of(self.address, key)):
            raise InvalidArgumentError("transactions in a tar file are not looked at", path=self.address, found=isolation)

    def split(self, piece: OffsetPiece, time: TimeRange, isolation: Isolation) -> TarSplit:
        self._check(piece.key, isolation)
        return TarSplit(
            address=self.address,
            topic=piece.key.topic,
            partition=piece.key.partition,
            start_offset=piece.start_offset,
            end_offset=piece.end_offset,
            time=time,
            size_bytes=piece.size_bytes,
        )
