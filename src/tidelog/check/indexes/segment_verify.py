"""One segment compared with what its log says: the unit of work of a verification, on a thread or on another machine.

What it is told (`SegmentToVerify`) and what it tells can be pickled. There are two looks:

| | tells | takes |
|---|---|---|
| `examine_segment` | whether the indexes are just what Kafka 3.9.1's rules give; time maps; log faults | a walk in the kernel |
| `check_prepared` | of the others, entry by entry, what is wrong, by the rules they were written by | Python for each entry |

The rules are found from a few segments of the partition in between (`make_survey`). Transactions reach over segments: see
`partition_verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.check.indexes.index_content import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, read_indexes
from tidelog.check.indexes.index_finding import Finding
from tidelog.check.indexes.index_rebuild import ProducerBatch, transaction_batches
from tidelog.check.indexes.log_faults import log_faults
from tidelog.check.indexes.offset_entry_forms import Form
from tidelog.check.indexes.segment_index_check import Prepared, Survey, check, prepare
from tidelog.check.indexes.time_entry_forms import TimeForm
from tidelog.check.indexes.time_map_check import check_time_map
from tidelog.errors import SegmentChangedError
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import time_map_path
from tidelog.storage.loading.log_scan import Progress, ScannedLog, scan_log

SURVEYED_SEGMENTS = 3
"""A large segment's entries take a hundred megabytes."""


class SegmentToVerify(NamedTuple):
    """A segment, as long as it was when it was listed."""

    segment: Segment
    size_bytes: int
    is_live: bool
    """The last segment of a folder that was not closed."""
    interval_bytes: int
    time_map_dir: Path | None = None
    """A folder of time maps, beside those beside the segments."""


# --- the first look


class ExaminedSegment(NamedTuple):
    """What one look at a segment tells, without its neighbours."""

    size_bytes: int | None
    """None: it is gone."""
    offset_entries: int = 0
    time_entries: int = 0
    is_as_expected: bool = True
    """Whether offset index and time index are just what the log says."""
    time_maps: int = 0
    findings: Sequence[Finding] = ()
    transactions: Sequence[ProducerBatch] = ()


def examine_segment(one: SegmentToVerify, progress: Progress | None = None) -> ExaminedSegment:
    """Look at a segment. Raises StorageError."""
    try:
        return _look_at(one, progress)
    except SegmentChangedError:
        return ExaminedSegment(None, findings=[gone(one.segment)])


def _look_at(one: SegmentToVerify, progress: Progress | None) -> ExaminedSegment:
    segment = one.segment
    scanned = scan_log(segment.file, one.size_bytes, segment.base_offset, one.interval_bytes, progress=progress)
    findings = log_faults(segment, one.size_bytes, scanned)
    maps = 0
    for directory in dict.fromkeys([one.time_map_dir, None]):
        path = time_map_path(segment.log_path, directory)
        found = check_time_map(path, segment.file, segment.base_offset, scanned.valid_bytes)
        if found is not None:
            maps += 1
            findings += found
    offsets, times = read_indexes(segment)
    is_as_expected = (
        offsets is not None
        and times is not None
        and offsets.data == scanned.offset_entries
        and times.data in _time_entries_of(scanned, is_unfinished=one.is_live and times.padding_bytes > 0)
        and not (offsets.ragged_bytes or times.ragged_bytes)
        and (one.is_live or not (offsets.padding_bytes or times.padding_bytes))
    )
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
    )


def _time_entries_of(scanned: ScannedLog, *, is_unfinished: bool) -> list[bytes]:
    """Return what a time index may hold: of a live one, the last entry may be one that only the roll will write."""
    entries = scanned.time_entries
    if not is_unfinished or not entries:
        return [entries]
    last_indexed = scanned.offset_entries[-OFFSET_ENTRY_BYTES:-4]
    comes_later = not last_indexed or entries[-4:] > last_indexed
    return [entries, entries[:-TIME_ENTRY_BYTES]] if comes_later else [entries]


def gone(segment: Segment) -> Finding:
    """Return the note about a segment that is not there any more."""
    return Finding(segment.log_path, "its owner has removed or replaced it meanwhile", is_fault=False)


# --- the second look


class SurveySeed(NamedTuple):
    """What is known of a partition before any entry of it is looked at."""

    preferred: Sequence[int]
    """Intervals that are likely."""
    given_interval_bytes: int | None
    offset_entries: int
    """Entries that are just what the logs say, of segments that are not surveyed."""
    time_entries: int


class CheckedSegment(NamedTuple):
    """What a comparison comes to."""

    findings: Sequence[Finding]
    interval_bytes: int | None
    """With which the segment was indexed; None: it is gone."""
    forms: Counter[tuple[str, Form | TimeForm]]
    """Entries that are right, by the file's suffix and their form."""


def prepare_segment(one: SegmentToVerify) -> Prepared | SegmentToVerify:
    """Read a segment whole; return it as it came if it is gone. Raises StorageError."""
    try:
        return prepare(one.segment, one.size_bytes, is_live=one.is_live)
    except SegmentChangedError:
        return one


def make_survey(
    seed: SurveySeed, unclear: Iterable[Prepared | SegmentToVerify], usual: Iterable[Prepared | SegmentToVerify]
) -> Survey:
    """Find the rules of a partition from some of its segments: those to be checked, and those that are just what the logs say."""
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
    """Compare a segment by the rules of its partition; `restarts` are offsets at which its broker may have been started."""
    if not isinstance(one, Prepared):
        return CheckedSegment([gone(one.segment)], None, Counter())
    checked = check(one, survey, restarts)
    one.segment.close()
    return CheckedSegment(checked.findings, checked.rules.interval_bytes, checked.forms)
