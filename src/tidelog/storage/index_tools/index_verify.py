"""Whether the indexes and time maps of a data folder are right and complete; nothing is written.

| file | is compared with |
|---|---|
| `.index`, `.timeindex` | what Kafka 3.9.1's rules give for the log; where they differ, entry by entry (`segment_index_check`) |
| `.txnindex` | the transactions that the producers' state sees aborted, segment by segment (`txn_index_check`) |
| `.timemap` | the one that is built from the log (`time_map_check`) |
| `.log` | itself: checksums, offsets, lengths. What follows the first batch that is wrong has no index |

The interval, index.interval.bytes, is taken from the indexes themselves unless it is given: first from the beginning of a few
segments, then from all that differ. A segment whose indexes are just what the log says costs one walk in the kernel; segments are
walked on several threads. What older releases wrote by other rules is right, too, and is noted.

An index is a hint in Tidelog (ADR 3), so none of this is needed for right answers; Kafka believes its indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from tidelog.config import LogConfig
from tidelog.errors import CorruptBatchError, SegmentChangedError
from tidelog.log import names
from tidelog.log.files import ReadOnlyFile
from tidelog.log.log import Log
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment import Segment
from tidelog.log.segment_end import find_end
from tidelog.log.time_map_file import time_map_path
from tidelog.log.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from tidelog.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE
from tidelog.storage.index_tools.batch_table import EVERY_BATCH, BatchTable
from tidelog.storage.index_tools.in_order import in_order
from tidelog.storage.index_tools.index_content import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    check_in_place,
    index_path,
    read_index,
    read_indexes,
)
from tidelog.storage.index_tools.index_finding import Finding, shortened
from tidelog.storage.index_tools.index_interval import IntervalVotes
from tidelog.storage.index_tools.index_rebuild import aborted_in, state_at
from tidelog.storage.index_tools.offset_entry_forms import Form, read_entries
from tidelog.storage.index_tools.offset_index_check import add_gaps, chain_of
from tidelog.storage.index_tools.segment_index_check import Prepared, Survey, check, prepare
from tidelog.storage.index_tools.time_entry_forms import TimeForm
from tidelog.storage.index_tools.time_map_check import check_time_map
from tidelog.storage.index_tools.txn_index_check import check_txn_index, has_gaps
from tidelog.storage.loading.log_scan import Progress, ScannedLog, scan_log

DEFAULT_INTERVAL_BYTES = LogConfig().index_interval_bytes

_GUESSED_FROM_SEGMENTS = 3
_GUESSED_FROM_BYTES = 1 << 20
_ENOUGH_GAPS = 32
# A large segment's entries take a hundred megabytes.
_SURVEYED_SEGMENTS = 3


@dataclass
class VerifiedPartition:
    """What was found of a partition."""

    topic: str
    partition: int
    directory: Path
    interval_bytes: int
    """index.interval.bytes, as most of its segments have it."""
    segments: int = 0
    size_bytes: int = 0
    offset_entries: int = 0
    time_entries: int = 0
    aborted_transactions: int = 0
    time_maps: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many findings are faults."""
        return sum(finding.is_fault for finding in self.findings)


class VerifyOptions(NamedTuple):
    """How a folder is verified."""

    interval_bytes: int | None = None
    """None: found from the indexes."""
    time_map_dir: Path | None = None
    """A folder of time maps, beside those beside the segments."""
    threads: int = 1
    progress: Progress | None = None
    """Hears, from the walking threads, how many bytes more of the logs were walked."""


class PartitionToVerify(NamedTuple):
    """A partition: how it is opened, and what is likely its interval (None: nothing is known)."""

    open: Callable[[], Log]
    likely_interval_bytes: int | None = None


def verify_partitions(partitions: Iterable[PartitionToVerify], options: VerifyOptions) -> Iterator[VerifiedPartition]:
    """Yield what was found of each partition, in order.

    Raises StorageError, and what opening raises. A segment that its owner removes meanwhile is passed over.
    """
    waiting: list[_Partition] = []

    def segments() -> Iterator[_Segment]:
        for partition in partitions:
            opened = _Partition(partition, options)
            waiting.append(opened)
            yield from opened.segments

    for examined in in_order(_examine, segments(), options.threads):
        # A partition without segments has none that could tell of its end.
        while waiting[0] is not examined.segment.partition:
            yield waiting.pop(0).result()
        waiting[0].take(examined)
    for partition in waiting:
        yield partition.result()


class _Segment(NamedTuple):
    """A segment that is to be examined, on any thread."""

    partition: _Partition
    segment: Segment
    size_bytes: int
    is_live: bool


class _Examined(NamedTuple):
    """What one look at a segment tells, without its neighbours."""

    segment: _Segment
    scanned: ScannedLog | None
    """None: it is gone."""
    offset_entries: int
    time_entries: int
    is_as_expected: bool
    """Whether offset index and time index are just what the log says."""
    time_maps: int
    findings: list[Finding]


class _Partition:
    """One partition on its way."""

    def __init__(self, partition: PartitionToVerify, options: VerifyOptions) -> None:
        self.options = options
        log = self._log = partition.open()
        preferred = [DEFAULT_INTERVAL_BYTES]
        if partition.likely_interval_bytes is not None:
            preferred.insert(0, partition.likely_interval_bytes)
        self._preferred = preferred
        given = options.interval_bytes
        self.interval_bytes = guess_interval(log.segments, preferred) if given is None else given
        is_closed = (log.directory.parent / CLEAN_SHUTDOWN_FILE).exists()
        self.segments = [
            _Segment(self, segment, segment.size_bytes, is_live=segment.is_last and not is_closed) for segment in log.segments
        ]
        self._result = VerifiedPartition(log.topic, log.partition, log.directory, self.interval_bytes)
        self._result.findings += _orphans(log)
        self._unclear: list[_Segment] = []
        self._clear: list[_Segment] = []
        """Some of those that are just what their logs say."""
        self._examined: list[Segment] = []
        self._state: ProducerState | None = None
        self._clear_offset_entries = self._clear_time_entries = 0
        """Of those among them that are not kept."""
        self._lost_records: bool | None = None

    def take(self, examined: _Examined) -> None:
        """Take the next segment's outcome."""
        result, segment, scanned = self._result, examined.segment.segment, examined.scanned
        result.segments += 1
        result.findings += examined.findings
        if scanned is None:
            return
        result.size_bytes += scanned.size_bytes
        result.offset_entries += examined.offset_entries
        result.time_entries += examined.time_entries
        result.time_maps += examined.time_maps
        self._examined.append(segment)
        if examined.is_as_expected:
            if len(self._clear) < _SURVEYED_SEGMENTS:
                self._clear.append(examined.segment)
            else:
                self._clear_offset_entries += examined.offset_entries
                self._clear_time_entries += examined.time_entries
        else:
            self._unclear.append(examined.segment)
        try:
            self._check_transactions(segment, scanned)
        except SegmentChangedError:
            result.findings.append(_gone(segment))
        segment.close()

    def result(self) -> VerifiedPartition:
        """Return what was found, once every segment was taken."""
        if self._unclear:
            self._check_unclear()
        self._result.findings.sort(key=lambda finding: (finding.path.name, finding.slot is None, finding.slot or 0))
        return self._result

    def _check_transactions(self, segment: Segment, scanned: ScannedLog) -> None:
        if self._state is None:
            self._state = state_at(segment.log_path)
        aborted = aborted_in(segment.file, scanned, self._state)
        path = index_path(segment.log_path, names.TXN_INDEX_SUFFIX)
        content = read_index(path, TXN_ENTRY_BYTES)
        check_in_place(segment)
        self._result.aborted_transactions += len(aborted)
        found = check_txn_index(path, content, aborted, segment.file, scanned.producer_positions, self._has_lost_records)
        self._result.findings += shortened(found)

    def _has_lost_records(self) -> bool:
        """Whether compaction or retention took records from what was examined so far."""
        if not self._lost_records:
            first = self._examined[0]
            is_beginning = first.base_offset == 0 or first.index_path(names.SNAPSHOT_SUFFIX).exists()
            self._lost_records = not is_beginning or any(has_gaps(one.file, one.base_offset) for one in self._examined)
        return self._lost_records

    def _check_unclear(self) -> None:
        """Go through the segments that are not just what their logs say, by the rules that they were written by."""
        # A guess from segments that older releases indexed may be beside the mark.
        known = [self.interval_bytes] if self._clear else []
        survey = Survey([*known, *self._preferred], self.options.interval_bytes)
        survey.forms.counts[Form.BATCH] += self._clear_offset_entries
        survey.times.entries += self._clear_time_entries
        prepared = in_order(_prepare, self._unclear, self.options.threads)
        surveyed = list(islice(prepared, _SURVEYED_SEGMENTS))
        survey.add(one for one in surveyed if isinstance(one, Prepared))
        for usual in map(_prepare, self._clear):
            if isinstance(usual, Prepared):
                survey.add_usual(usual)
        restarts = self._log.snapshots
        forms: Counter[tuple[str, Form | TimeForm]] = Counter()
        for one in chain(surveyed, prepared):
            if isinstance(one, Prepared):
                checked = check(one, survey, restarts)
                if not self._clear:
                    self._result.interval_bytes = checked.rules.interval_bytes
                self._result.findings += checked.findings
                forms += checked.forms
                one.segment.close()
            else:
                self._result.findings.append(_gone(one.segment))
        for (suffix, form), count in sorted(forms.items(), key=lambda item: (item[0][0], item[0][1].name)):
            if form not in (Form.BATCH, TimeForm.LAST):
                entries = "1 entry" if count == 1 else f"{count} entries"
                what = f"{suffix}: {entries} {form.value}: not by the rules of Kafka 3.9.1, and right"
                self._result.findings.append(Finding(self._log.directory, what, is_fault=False))


def _prepare(one: _Segment) -> Prepared | _Segment:
    """Read a segment whole; return it as it came if it is gone."""
    try:
        return prepare(one.segment, one.size_bytes, is_live=one.is_live)
    except SegmentChangedError:
        return one


def _examine(one: _Segment) -> _Examined:
    segment = one.segment
    try:
        return _look_at(one)
    except SegmentChangedError:
        return _Examined(one, None, 0, 0, True, 0, [_gone(segment)])


def _look_at(one: _Segment) -> _Examined:
    segment, partition = one.segment, one.partition
    options = partition.options
    scanned = scan_log(segment.file, one.size_bytes, segment.base_offset, partition.interval_bytes, progress=options.progress)
    findings = log_faults(segment, one.size_bytes, scanned)
    maps = 0
    for directory in dict.fromkeys([options.time_map_dir, None]):
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
    return _Examined(
        one,
        scanned,
        0 if offsets is None else len(offsets.data) // OFFSET_ENTRY_BYTES,
        0 if times is None else len(times.data) // TIME_ENTRY_BYTES,
        is_as_expected,
        maps,
        findings,
    )


def _time_entries_of(scanned: ScannedLog, *, is_unfinished: bool) -> list[bytes]:
    """Return what a time index may hold: of a live one, the last entry may be one that only the roll will write."""
    entries = scanned.time_entries
    if not is_unfinished or not entries:
        return [entries]
    last_indexed = scanned.offset_entries[-OFFSET_ENTRY_BYTES:-4]
    comes_later = not last_indexed or entries[-4:] > last_indexed
    return [entries, entries[:-TIME_ENTRY_BYTES]] if comes_later else [entries]


def log_faults(segment: Segment, size_bytes: int, scanned: ScannedLog) -> list[Finding]:
    """Say what is wrong with a log; what a crash or a running broker leaves at the end of the last one is no fault."""
    if scanned.is_whole:
        return []
    path, position = segment.log_path, scanned.valid_bytes
    if segment.is_last:
        try:
            find_end(segment.file, size_bytes, position, scanned.next_offset, segment.notices)
        except CorruptBatchError as error:
            return [Finding(path, error.message, position=position)]
        return []
    why = scanned.fault or "a batch is cut off by the end of its segment"
    return [Finding(path, f"{why}; there is no index from here on", position=position)]


def _gone(segment: Segment) -> Finding:
    return Finding(segment.log_path, "its owner has removed or replaced it meanwhile", is_fault=False)


def _orphans(log: Log) -> list[Finding]:
    """Return a note for each index without a segment."""
    bases = {segment.base_offset for segment in log.segments}
    suffixes = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX, names.TIME_MAP_SUFFIX)
    return [
        Finding(path, "there is no segment of that name", is_fault=False)
        for path in sorted(log.directory.iterdir())
        if path.suffix in suffixes and path.stem.isdecimal() and int(path.stem) not in bases
    ]


def guess_interval(segments: Sequence[Segment], preferred: Sequence[int]) -> int:
    """Return the interval that the first entries of a few segments were written with, the first of `preferred` without any.

    Raises StorageError.
    """
    votes = IntervalVotes()
    for segment in islice((one for one in segments if one.size_bytes), _GUESSED_FROM_SEGMENTS):
        try:
            _vote(votes, segment)
        except SegmentChangedError:
            continue
        finally:
            segment.close()
        if votes.closed >= _ENOUGH_GAPS:
            break
    return votes.best(preferred)


def _vote(votes: IntervalVotes, segment: Segment) -> None:
    path = index_path(segment.log_path, names.INDEX_SUFFIX)
    is_cut = segment.size_bytes > _GUESSED_FROM_BYTES
    size = min(segment.size_bytes, _GUESSED_FROM_BYTES)
    table = BatchTable(scan_log(segment.file, size, segment.base_offset, EVERY_BATCH))
    with ReadOnlyFile(path, fallbacks=()) as file:
        data = file.read(0, len(table) * OFFSET_ENTRY_BYTES)
    entries = read_entries(data[: len(data) - len(data) % OFFSET_ENTRY_BYTES], table, segment.file)
    forms = frozenset({Form.BATCH})
    chosen = chain_of(entries, forms)
    # What follows the last entry within a piece of the log says nothing of the interval.
    add_gaps(votes, table, chosen, has_sets=False, is_cut=is_cut)
