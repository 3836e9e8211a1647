"""A source whose splits are ranges of offsets. For a time range, the source looks up the first offset and reads from there to the
end.

A subclass defines only `split`, besides `topics`, `partitions`, `ends` and `find`, which every source defines.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError
from tidelog.model import Isolation, TopicPartition
from tidelog.records.records import first_record_at
from tidelog.sources.bounds import TimeRange, clip, wanted_partitions
from tidelog.sources.offset_cuts import OffsetPiece, cut_offsets
from tidelog.sources.scan_plan import PartitionRange, ScanPlan, ScanRequest
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.source import Source

if TYPE_CHECKING:
    from tidelog.formats.paths.file_path import AnyPath
    from tidelog.sources.reader_resources import ReaderResources
    from tidelog.sources.split import Split

WALK_BYTES = 64 * 1024 * 1024
"""The most bytes that are read in a partition to find the first record that is after an offset and at or after a time."""


class OffsetSource(Source):
    """A source that reads records by offset."""

    @abstractmethod
    def split(self, piece: OffsetPiece, time: TimeRange, isolation: Isolation) -> Split:
        """Return the split that reads a range of offsets."""

    def plan(self, request: ScanRequest) -> ScanPlan[Split]:
        if request.time_map_dir is not None:
            raise InvalidArgumentError("time maps need a folder: brokers give no access to segment files", path=self.address)
        topic, notes = request.topic, list[str]()
        numbers = wanted_partitions(self.partitions(topic), request.partitions, request.offsets)
        keys = [TopicPartition(topic, number) for number in numbers]
        bounds = self.bounds(keys, request.time.start_ms, request.isolation, request.until)
        sizes = self.sizes(keys)
        parts: list[PartitionRange] = []
        bytes_each: dict[TopicPartition, float] = {}
        for key in keys:
            held = bounds[key]
            wanted = request.offsets_of(key.partition)
            first, end = clip(f"{topic}-{key.partition}", held.log_start_offset, held.end_offset, wanted, notes)
            bytes_each[key] = sizes.get(key, 0) / max(1, held.end_offset - held.log_start_offset)
            parts.append(
                PartitionRange(
                    partition=key.partition,
                    start_offset=min(max(first, held.start_offset), end),
                    end_offset=end,
                    log_start_offset=held.log_start_offset,
                    log_end_offset=held.end_offset,
                    size_bytes=sizes.get(key, 0),
                )
            )
        ranges = {key: (part.start_offset, part.end_offset) for key, part in zip(keys, parts, strict=True)}
        pieces = cut_offsets(ranges, bytes_each, split_bytes=request.split_bytes, min_splits=request.min_splits)
        splits = () if request.time.is_empty else tuple(self.split(one, request.time, request.isolation) for one in pieces)
        return ScanPlan(topic=topic, time=request.time, splits=splits, partitions=tuple(parts), notes=tuple(notes))

    def splits(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        time: TimeRange,
        isolation: Isolation,
        *,
        split_bytes: int,
        min_splits: int = 1,
        time_map_dir: AnyPath | None = None,
        report: ScanReport | None = None,
    ) -> list[Split]:
        wanted = dict(sorted(ranges.items()))
        pieces = cut_offsets(wanted, self.bytes_each(wanted), split_bytes=split_bytes, min_splits=min_splits)
        return [self.split(piece, time, isolation) for piece in pieces]

    def reach(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int, isolation: Isolation
    ) -> tuple[dict[TopicPartition, int], bool]:
        # If the answer is below the range, a later record may be the first in the range: read the range, up to WALK_BYTES.
        answers = self.find(dict.fromkeys(ranges, time_ms), isolation)
        found: dict[TopicPartition, int] = {}
        is_whole = True
        for key, (start, end) in ranges.items():
            first = answers[key]
            if first is None or first.offset >= start:
                found[key] = end if first is None else min(first.offset, end)
            else:
                split = self.split(OffsetPiece(key, start, end, end - start), TimeRange(), isolation)
                found[key], reached = _walk(split, time_ms, self.reading)
                is_whole = is_whole and reached
        return found, is_whole


def _walk(split: Split, time_ms: int, reading: ReaderResources) -> tuple[int, bool]:
    """Return the offset of the first record of a split that is at or after a time, or the split's end if there is none. Also
    return whether the walk got that far: False if it stopped after `WALK_BYTES`.
    """
    report = ScanReport()
    position, end = split.start_offset, split.end_offset
    for header, records, index in split.batches(reading, report):
        if header.max_timestamp >= time_ms:
            batch = records[index : index + header.size]
            found = first_record_at(header, batch, time_ms, split.start_offset, path=split.place)
            if found is not None:
                return min(found[0], end), True
        position = header.last_offset + 1
        if report.bytes_read >= WALK_BYTES:
            return min(position, end), False
    return end, True
