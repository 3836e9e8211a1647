"""`tidelog stat DIR|HOST:PORT [TOPIC]`: offsets, records, bytes and largest timestamps of each partition and segment.

The largest timestamp of a segment decides what retention deletes and what a search by time skips, so it is shown with its source:

| source | the largest timestamp is |
|---|---|
| index | that of the last time index entry, confirmed by the log |
| log | found in the batches: there is no such entry, or a later batch has a larger one |
| mtime | the file's modification time, as in Kafka, because the segment has no timestamps |

Counting requires a walk over the batch headers; `--quick` leaves the counts out. `stat_brokers` is for brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from tidelog.cli.options import json_option, optional_topic, source_argument, wanted_partitions
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, show_count, show_time, table
from tidelog.cli.printing.missing import end_with_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.segment import Segment
from tidelog.reader.segment_time import retention_timestamp
from tidelog.records.batch import BatchHeader, check_crc
from tidelog.records.kernel import Rows
from tidelog.records.markers import MARKER_BATCH_BYTES
from tidelog.records.scanner import scan_batch
from tidelog.sources.opening import kind_of, open_source
from tidelog.sources.source import Source


@dataclass(frozen=True, slots=True)
class SegmentStat:
    """Figures of a segment; counts are None if records were not counted."""

    base_offset: int
    next_offset: int
    batches: int | None
    records: int | None
    size_bytes: int
    largest_timestamp: int
    largest_timestamp_source: str


@dataclass(frozen=True, slots=True)
class PartitionStat:
    """Figures of a partition and its segments."""

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    message_format: int | None
    segments: list[SegmentStat]
    missing: list[MissingOffsets]

    @property
    def batches(self) -> int | None:
        """The number of batches in all segments; None if they were not counted."""
        return _sum([segment.batches for segment in self.segments])

    @property
    def records(self) -> int | None:
        """The number of records in all segments that a consumer can read; None if they were not counted."""
        return _sum([segment.records for segment in self.segments])

    @property
    def size_bytes(self) -> int:
        """The size of all `.log` files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def largest(self) -> SegmentStat | None:
        """The segment with the largest timestamp. Segments without timestamps are considered only if no segment has
        timestamps.
        """
        timed = [segment for segment in self.segments if segment.largest_timestamp_source != "mtime"]
        return max(timed or self.segments, key=lambda segment: segment.largest_timestamp, default=None)


@click.command()
@source_argument
@optional_topic
@click.option("--quick", is_flag=True, help="Do not count batches and records: read only the ends and indexes of the files.")
@json_option
def command(source: str, topic: str | None, partitions: tuple[int, ...], quick: bool, as_json: bool) -> None:
    """Show offsets, records, bytes and largest timestamps: of each partition, and of each segment of TOPIC.

    Only records that a consumer can read are counted: no control records, and none below the log start.
    For brokers, the figures are those that the brokers report, without reading records: --quick has no effect.
    """
    wanted = wanted_partitions(partitions)
    if kind_of(source).is_cluster:
        from tidelog.cli.commands import stat_brokers

        print_lines(stat_brokers.lines(source, topic, wanted, as_json))
        return
    with open_source(source) as opened:
        if opened.log_dir is not None:
            _print_folder(opened.log_dir, topic, wanted, quick, as_json)
        else:
            print_lines(_ends(opened, topic, wanted, as_json))


def _ends(source: Source, topic: str | None, wanted: list[int] | None, as_json: bool) -> Iterator[str]:
    """Yield the start and end offsets of partitions, for a source that has neither files nor brokers."""
    numbers = source.topics() if topic is None else {topic: wanted or source.partitions(topic)}
    ends = source.ends([TopicPartition(name, number) for name in sorted(numbers) for number in numbers[name]])
    rows = [(*key, held.log_start_offset, held.log_end_offset) for key, held in ends.items()]
    if as_json:
        names = ("topic", "partition", "log_start_offset", "log_end_offset")
        yield from (json_line({"type": "partition", **dict(zip(names, row, strict=True))}) for row in rows)
    else:
        yield from table(("topic", "partition", "log start", "log end"), map(list, rows))


def _print_folder(log_dir: LogDir, topic: str | None, wanted: list[int] | None, quick: bool, as_json: bool) -> None:
    lost = [] if wanted else log_dir.missing_partitions(topic)
    missing = list(lost)
    stats = _stats(log_dir, _wanted(log_dir, topic, wanted), quick, missing)
    if as_json:
        print_lines(line for stat in stats for line in _json_lines(stat))
        print_lines(json_line({"type": "missing_partition", **one.fields()}) for one in lost)
    elif topic is None:
        print_lines(table(_PARTITION_HEADER, map(_partition_cells, stats), spare=_SPARE))
    else:
        print_lines(line for stat in stats for line in _lines(stat))
    for one in missing:
        notices.note(str(one))
    end_with_missing(missing)


def _wanted(log_dir: LogDir, topic: str | None, partitions: list[int] | None) -> list[tuple[str, int]]:
    if topic is None:
        return [(name, partition) for name, numbers in sorted(log_dir.topics().items()) for partition in numbers]
    return [(topic, partition) for partition in partitions or log_dir.partitions(topic)]


def _stats(log_dir: LogDir, wanted: list[tuple[str, int]], quick: bool, missing: list[MissingOffsets]) -> Iterator[PartitionStat]:
    """Yield the figures of each partition; missing records are added to `missing`.

    An unreadable partition does not hide the others: its error is raised last.
    """
    failures: list[TidelogError] = []
    for topic, partition in wanted:
        try:
            log = log_dir.log(topic, partition)
            size_bytes = 0 if quick else sum(segment.size_bytes for segment in log.segments)
            with ProgressBar(f"stat {topic}-{partition}", size_bytes, answer_on_stdout=False) as bar:
                stat = _partition(log, bar, quick)
        except TidelogError as error:
            failures.append(error)
            continue
        missing += stat.missing
        yield stat
    for failure in failures[:-1]:
        notices.complain(str(failure))
    if failures:
        raise failures[-1]


def _partition(log: Log, bar: ProgressBar, quick: bool) -> PartitionStat:
    segments = []
    log.check_names()
    for segment in log.segments:
        segments.append(_segment(log, segment, bar, quick))
        segment.close()
    ends = (log.log_start_offset, log.log_end_offset, log.high_watermark)
    return PartitionStat(log.topic, log.partition, *ends, log.message_format, segments, log.missing())


def _segment(log: Log, segment: Segment, bar: ProgressBar, quick: bool) -> SegmentStat:
    batches = records = None
    if not quick:
        batches = records = 0
        before = None
        for header in segment.headers():
            if before is not None and before.magic != header.magic:
                # Rare. A flipped bit in the format byte would change how records are counted: verify the checksums.
                check_crc(before, segment.read_batch(before), segment.log_path)
                check_crc(header, segment.read_batch(header), segment.log_path)
            before = header
            batches += 1
            records += _record_count(segment, header, log.log_start_offset)
            bar.advance(header.size)
    largest = retention_timestamp(segment)
    return SegmentStat(
        segment.base_offset, segment.next_offset, batches, records, segment.size_bytes, largest.timestamp, largest.source
    )


def _record_count(segment: Segment, header: BatchHeader, log_start_offset: int) -> int:
    """Return how many records of a batch a consumer can read; the batch is opened only if its header does not show that."""
    is_doubtful = header.is_control or header.record_count != header.next_offset - header.base_offset
    if header.magic == 2 and (is_doubtful or header.size == MARKER_BATCH_BYTES):
        # Verify the checksum if the offsets do not confirm the record count, or if a flipped bit may have turned a marker
        # into a batch of one record.
        check_crc(header, segment.read_batch(header), segment.log_path)
    if header.is_control or header.last_offset < log_start_offset:
        return 0
    if header.magic == 2 and header.base_offset >= log_start_offset:
        return header.record_count
    if header.magic < 2 and not header.is_compressed:
        return 1
    rows = Rows()
    rows.set_bounds(None, None, log_start_offset, None)
    return scan_batch(rows, header, segment.read_batch(header), path=segment.log_path)[0]


def _sum(counts: list[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


_PARTITION_HEADER = (
    *("topic", "partition", "log start", "log end", "high watermark", "format"),
    *("segments", "batches", "records", "size", "largest timestamp", "from"),
)

_SPARE = ("from", "format", "batches", "segments", "high watermark", "log start")

_SEGMENT_HEADER = ("base offset", "next offset", "batches", "records", "size", "largest timestamp", "from")


def _format_name(message_format: int | None) -> str | None:
    return None if message_format is None else f"v{message_format}"


def _largest(segment: SegmentStat | None) -> tuple[str | None, str | None]:
    return (None, None) if segment is None else (show_time(segment.largest_timestamp), segment.largest_timestamp_source)


def _partition_cells(stat: PartitionStat) -> list[object]:
    return [
        *(stat.topic, stat.partition, stat.log_start_offset, stat.log_end_offset, stat.high_watermark),
        *(_format_name(stat.message_format), show_count(len(stat.segments)), show_count(stat.batches), show_count(stat.records)),
        *(show_bytes_size(stat.size_bytes), *_largest(stat.largest)),
    ]


def _lines(stat: PartitionStat) -> Iterator[str]:
    watermark = "" if stat.high_watermark is None else f", high watermark {stat.high_watermark}"
    counts = "" if stat.records is None else f"{stat.records:,} records in {stat.batches:,} batches, "
    yield one_line(
        f"{stat.topic}-{stat.partition}: offsets {stat.log_start_offset} to {stat.log_end_offset}{watermark}; "
        f"{counts}{show_bytes_size(stat.size_bytes)}, {len(stat.segments)} segment{'' if len(stat.segments) == 1 else 's'}"
    )
    rows = (
        [
            *(segment.base_offset, segment.next_offset, show_count(segment.batches), show_count(segment.records)),
            *(show_bytes_size(segment.size_bytes), *_largest(segment)),
        ]
        for segment in stat.segments
    )
    yield from table(_SEGMENT_HEADER, rows, spare=("batches", "from"), indent="  ")


def _json_lines(stat: PartitionStat) -> Iterator[str]:
    place = {"topic": stat.topic, "partition": stat.partition}
    largest = stat.largest
    yield json_line(
        {
            "type": "partition",
            **place,
            "log_start_offset": stat.log_start_offset,
            "log_end_offset": stat.log_end_offset,
            "high_watermark": stat.high_watermark,
            "message_format": _format_name(stat.message_format),
            "segments": len(stat.segments),
            "batches": stat.batches,
            "records": stat.records,
            "bytes": stat.size_bytes,
            "largest_timestamp": None if largest is None else largest.largest_timestamp,
            "largest_timestamp_source": None if largest is None else largest.largest_timestamp_source,
            **({"missing": [one.fields() for one in stat.missing]} if stat.missing else {}),
        }
    )
    for segment in stat.segments:
        yield json_line(
            {
                "type": "segment",
                **place,
                "base_offset": segment.base_offset,
                "next_offset": segment.next_offset,
                "batches": segment.batches,
                "records": segment.records,
                "bytes": segment.size_bytes,
                "largest_timestamp": segment.largest_timestamp,
                "largest_timestamp_source": segment.largest_timestamp_source,
            }
        )
