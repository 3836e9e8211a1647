"""Verifies or rebuilds one segment, the unit of work for a thread or another machine. Arguments and results can be pickled.

| | does | cost |
|---|---|---|
| `examine_segment` | compares indexes with Kafka's rules and time maps with the log; opens all batches | one walk in Cython |
| `check_prepared` | finds the faults of indexes that differ, by the rules under which they were written | Python for each entry |
| `rebuild_segment` | writes the indexes, except the `.txnindex`, and the time map | one walk in Cython, another for the map |

Between the two checks, `make_survey` finds the rules from a few segments of the partition. Transactions span segments, so
the result for a segment has only the batches that open or end a transaction, and `partitions` combines these.

A time map is correct if it equals one that is built from the part of the log that it covers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.check.batch_opening import BatchOpening
from tidelog.check.batch_table import EVERY_BATCH, BatchTable
from tidelog.check.finding import Finding
from tidelog.check.index_files import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexContent,
    RebuiltFile,
    index_path,
    put,
    put_time_map,
    read_indexes,
)
from tidelog.check.offset_index import Form
from tidelog.check.partition_rules import BatchFacts
from tidelog.check.piece_indexes import piece_indexes, pieces_of
from tidelog.check.segment_facts import check_facts, facts_of
from tidelog.check.segment_indexes import Prepared, Survey, check, prepare
from tidelog.check.time_index import TimeForm
from tidelog.check.txn_index import ProducerBatch, transaction_batches
from tidelog.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, SegmentChangedError
from tidelog.formats import names
from tidelog.formats.file_stamp import settled_stamp
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.summary.segment_summary import SegmentFacts
from tidelog.formats.time_map import TimeMap
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.reader.segment import Segment
from tidelog.reader.segment_end import find_end
from tidelog.reader.time_map_file import check_agrees, read_time_map, time_map_path, unchanged
from tidelog.storage.loading.log_scan import Progress, ScannedLog, scan_log


def log_faults(segment: Segment, size_bytes: int, scanned: ScannedLog) -> list[Finding]:
    """Return the faults of a log. A torn tail of the last segment, left by a crash or a running broker, is not a fault."""
    if scanned.is_whole:
        return []
    path, position = segment.log_path, scanned.valid_bytes
    if segment.is_last:
        try:
            find_end(segment.file, size_bytes, position, scanned.next_offset, segment.notices)
        except CorruptBatchError as error:
            return [Finding(path, error.message, position=position)]
        return []
    why = scanned.fault or "a batch is truncated by the end of its segment"
    return [Finding(path, f"{why}; no index covers the rest of the log", position=position)]


# --- the time map


_COLUMNS = (
    *("position", "first offset", "smallest timestamp", "largest timestamp", "distance to the last batch"),
    *(
        "digest of its batches",
        "records",
        "records without timestamp",
        "end of the holes",
        "timestamp before a hole",
        "timestamp after a hole",
    ),
)


def check_time_map(path: FilePath, log: ReadOnlyFile, base_offset: int, end_position: int) -> list[Finding] | None:
    """Compare a time map with a log whose batches end at `end_position`. Return None if there is no time map. Raises
    StorageError.
    """
    try:
        time_map = read_time_map(path)
        if time_map is None:
            return None
        check_agrees(time_map, log, base_offset, end_position, path)
        builder = TimeMapBuilder(base_offset, block_bytes=time_map.block_bytes)
        add_batches(builder, log, time_map.covered_bytes)
    except CorruptIndexError as error:
        found = None if error.found is None else str(error.found)
        return [Finding(path, error.message, found=found, expected=None if error.expected is None else str(error.expected))]
    except CorruptDataError as error:
        return [Finding(path, f"the log cannot be mapped: {error.message}", kind="note")]
    built = builder.build()
    return [] if built is None or built == time_map else [_difference(path, time_map, built)]


def _difference(path: FilePath, found: TimeMap, expected: TimeMap) -> Finding:
    for name, ours, theirs in zip(_COLUMNS, found.columns(), expected.columns(), strict=True):
        if len(ours) != len(theirs):
            return Finding(path, f"column {name!r} has the wrong length", found=str(len(ours)), expected=str(len(theirs)))
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return Finding(path, f"{name}, number {number}", found=str(one), expected=str(other))
    return Finding(path, "the header of the time map does not match the log")


SURVEYED_SEGMENTS = 3
"""The number of segments surveyed per partition. It is small, because a large segment's entries need a hundred megabytes of
memory.
"""


class SegmentToVerify(NamedTuple):
    """A segment, with its size when it was listed."""

    segment: Segment
    size_bytes: int
    is_live: bool
    """Whether it is the last segment of a folder without a clean shutdown."""
    interval_bytes: int
    time_map_dir: FilePath | None = None
    """A folder with time maps in addition to those next to the segments."""
    told: SegmentFacts | None = None
    """What ``segments.summary`` says about the segment."""


# --- the first look


class ExaminedSegment(NamedTuple):
    """The result of examining one segment by itself."""

    size_bytes: int | None
    """None if the segment was removed."""
    offset_entries: int = 0
    time_entries: int = 0
    is_as_expected: bool = True
    """Whether the offset index and time index are what Kafka 3.9.1 writes for the log, or in a backup what the rules for pieces
    make.
    """
    time_maps: int = 0
    findings: Sequence[Finding] = ()
    transactions: Sequence[ProducerBatch] = ()
    facts: BatchFacts | None = None
    """Epochs and gaps of the segment's batches; None if the log is damaged: then they must be found by a walk over the
    headers.
    """


def examine_segment(one: SegmentToVerify, progress: Progress | None = None) -> ExaminedSegment:
    """Examine a segment. Raises StorageError."""
    try:
        return _look_at(one, progress)
    except SegmentChangedError:
        return ExaminedSegment(None, findings=[gone(one.segment)])


def _look_at(one: SegmentToVerify, progress: Progress | None) -> ExaminedSegment:
    segment = one.segment
    opening = BatchOpening(segment.log_path)
    scanned = scan_log(
        segment.file, one.size_bytes, segment.base_offset, one.interval_bytes, progress=progress, whole=opening.open
    )
    findings = [*opening.findings, *log_faults(segment, one.size_bytes, scanned)]
    maps = 0
    for directory in dict.fromkeys([one.time_map_dir, None]):
        path = time_map_path(segment.log_path, directory)
        found = check_time_map(path, segment.file, segment.base_offset, scanned.valid_bytes)
        if found is not None:
            maps += 1
            findings += found
    if one.told is not None:
        findings += check_facts(segment, one.told)
    offsets, times = read_indexes(segment)
    is_as_expected = (
        offsets is not None
        and times is not None
        and offsets.data == scanned.offset_entries
        and times.data in _time_entries_of(scanned, is_unfinished=one.is_live and times.padding_bytes > 0)
        and not (offsets.ragged_bytes or times.ragged_bytes)
        and (one.is_live or not (offsets.padding_bytes or times.padding_bytes))
    )
    if not is_as_expected and offsets is not None and times is not None and scanned.is_whole:
        is_as_expected = _is_indexed_in_pieces(segment, one.size_bytes, offsets, times)
    transactions = transaction_batches(segment.file, scanned)
    segment.close()
    return ExaminedSegment(
        scanned.size_bytes,
        0 if offsets is None else len(offsets.data) // OFFSET_ENTRY_BYTES,
        0 if times is None else len(times.data) // TIME_ENTRY_BYTES,
        is_as_expected,
        maps,
        findings,
        transactions,
        None if scanned.fault or scanned.epoch_spans is None else BatchFacts(scanned.epoch_spans, scanned.first_gap),
    )


def _is_indexed_in_pieces(segment: Segment, size_bytes: int, offsets: IndexContent, times: IndexContent) -> bool:
    """Whether the segment is in a backup, and its indexes are exactly those of its pieces."""
    pieces = pieces_of(segment.log_path)
    if pieces is None or any(one.padding_bytes or one.ragged_bytes for one in (offsets, times)):
        return False
    table = BatchTable(scan_log(segment.file, size_bytes, segment.base_offset, EVERY_BATCH))
    return piece_indexes(table, pieces) == (offsets.data, times.data)


def _time_entries_of(scanned: ScannedLog, *, is_unfinished: bool) -> list[bytes]:
    """Return the allowed contents of a time index. In a live segment the last entry may be missing, because only the roll
    writes it.
    """
    entries = scanned.time_entries
    if not is_unfinished or not entries:
        return [entries]
    last_indexed = scanned.offset_entries[-OFFSET_ENTRY_BYTES:-4]
    comes_later = not last_indexed or entries[-4:] > last_indexed
    return [entries, entries[:-TIME_ENTRY_BYTES]] if comes_later else [entries]


def gone(segment: Segment) -> Finding:
    """Return the note about a removed segment."""
    return Finding(segment.log_path, "was removed or replaced by its owner during the check", kind="note")


# --- the second look


class SurveySeed(NamedTuple):
    """The facts about a partition that are known before entries are checked."""

    preferred: Sequence[int]
    """Intervals that are likely."""
    given_interval_bytes: int | None
    offset_entries: int
    """The number of entries in segments whose indexes are what Kafka 3.9.1 writes and that are not surveyed."""
    time_entries: int


class CheckedSegment(NamedTuple):
    """The result of checking a segment's entries."""

    findings: Sequence[Finding]
    interval_bytes: int | None
    """The interval with which the segment was indexed; None if the segment was removed."""
    forms: Counter[tuple[str, Form | TimeForm]]
    """The number of correct entries, by the file's suffix and the entry's form."""


def prepare_segment(one: SegmentToVerify) -> Prepared | SegmentToVerify:
    """Read a whole segment; return the argument unchanged if the segment was removed. Raises StorageError."""
    try:
        return prepare(one.segment, one.size_bytes, is_live=one.is_live)
    except SegmentChangedError:
        return one


def make_survey(
    seed: SurveySeed, unclear: Iterable[Prepared | SegmentToVerify], usual: Iterable[Prepared | SegmentToVerify]
) -> Survey:
    """Find the rules of a partition from some of its segments: `unclear` are to be checked, `usual` are as Kafka 3.9.1 writes
    them.
    """
    survey = Survey(seed.preferred, seed.given_interval_bytes)
    survey.forms.counts[Form.BATCH] += seed.offset_entries
    survey.times.entries += seed.time_entries
    survey.add(one for one in unclear if isinstance(one, Prepared))
    for one in usual:
        if isinstance(one, Prepared):
            survey.add_usual(one)
            one.segment.close()
    return survey


def check_prepared(one: Prepared | SegmentToVerify, survey: Survey, restarts: Iterable[int]) -> CheckedSegment:
    """Check a segment's entries by its partition's rules. `restarts` are offsets at which the broker may have been restarted."""
    if not isinstance(one, Prepared):
        return CheckedSegment([gone(one.segment)], None, Counter())
    checked = check(one, survey, restarts)
    one.segment.close()
    return CheckedSegment(checked.findings, checked.rules.interval_bytes, checked.forms)


# --- the rebuild


class SegmentToRebuild(NamedTuple):
    """A segment, and the files to rebuild for it."""

    segment: Segment
    out_dir: FilePath | None
    """The target folder, which must exist; None means in place."""
    interval_bytes: int
    time_maps: bool = True
    missing_only: bool = False
    """Leave existing files unchanged."""

    def target(self, suffix: str) -> FilePath:
        """Return the target path of one of the segment's files."""
        path = index_path(self.segment.log_path, suffix)
        return path if self.out_dir is None else self.out_dir / names.file_name(self.segment.base_offset, suffix)


class RebuiltSegment(NamedTuple):
    """The files written for a segment."""

    size_bytes: int
    files: list[RebuiltFile]
    findings: list[Finding]
    """The faults of the log."""
    transactions: list[ProducerBatch]
    facts: SegmentFacts | None = None
    """The facts for the summary; None if there is no time map of the whole segment."""


def rebuild_segment(task: SegmentToRebuild, progress: Progress | None = None) -> RebuiltSegment:
    """Walk a segment and write its files. Raises StorageError, and SegmentChangedError for a log that is removed or truncated
    meanwhile.
    """
    segment = task.segment
    scanned = scan_log(segment.file, segment.size_bytes, segment.base_offset, task.interval_bytes, progress=progress)
    files: list[RebuiltFile] = []
    # An empty segment's indexes are created with their first entry.
    for suffix, data in ((names.INDEX_SUFFIX, scanned.offset_entries), (names.TIME_INDEX_SUFFIX, scanned.time_entries)):
        path = task.target(suffix)
        if scanned.batches or path.exists():
            files += put(path, data, missing_only=task.missing_only)
    findings = log_faults(segment, segment.size_bytes, scanned)
    facts = None
    path = task.target(names.TIME_MAP_SUFFIX)
    # An existing map that is left unchanged needs no walk.
    if task.time_maps and not (task.missing_only and path.exists()):
        builder = TimeMapBuilder(segment.base_offset)
        try:
            stamp = settled_stamp(segment.file.stamp)
            add_batches(builder, segment.file, scanned.valid_bytes)
            time_map = builder.build(unchanged(stamp, segment.file))
            files += put_time_map(path, time_map)
            facts = facts_of(segment, time_map)
        except CorruptDataError as error:
            findings.append(Finding(segment.log_path, f"no time map was built: {error.message}", position=error.position))
    transactions = transaction_batches(segment.file, scanned)
    segment.close()
    return RebuiltSegment(scanned.size_bytes, files, findings, transactions, facts)
