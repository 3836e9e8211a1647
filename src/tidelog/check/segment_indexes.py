"""Checks the offset index and the time index of one segment entry by entry, if they differ from what Kafka 3.9.1 writes.

| a file | of a finished segment | of the last segment of a running broker |
|---|---|---|
| is missing | a fault | correct until an entry is due: the file is created with its first entry |
| ends in zeros | a fault: Kafka would read them as entries | correct: preallocated space |
| has wrong entries after the correct ones | faults | correct if no entry is missing before them: a truncation leaves them |
| ends with the largest timestamp (time index) | required | not required |
| has entries for batches appended during the check | a fault | correct, and skipped |

Entries for the part of the log after a damaged batch cannot be verified. They are skipped, in finished and last segments alike.

`prepare` reads, `Survey` finds the rules by which a partition was indexed, `check` compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from tidelog.check.batch_table import EVERY_BATCH, BatchTable
from tidelog.check.finding import Finding, shortened
from tidelog.check.index_files import TIME_ENTRY_BYTES, IndexContent, index_path, read_indexes
from tidelog.check.interval_votes import IntervalVotes, Starts
from tidelog.check.offset_index import (
    Form,
    FormSurvey,
    IndexRules,
    OffsetEntry,
    add_gaps,
    chain_of,
    check_offset_index,
    read_entries,
    required_rises,
    set_verdict,
)
from tidelog.check.time_index import CheckedTimes, TimeEntry, TimeEntryReader, TimeForm, TimeFormSurvey, check_time_index
from tidelog.formats import names
from tidelog.formats.paths.file_path import FilePath
from tidelog.reader.segment import Segment
from tidelog.storage.loading.log_scan import scan_log

OWN_INTERVAL_GAPS = 8
"""The number of gaps that suffice to show that a segment was indexed with a different interval from the rest of its partition."""

_Entry = TypeVar("_Entry", OffsetEntry, TimeEntry)


class Prepared(NamedTuple):
    """A segment with its batches and the content of its indexes."""

    segment: Segment
    is_live: bool
    """Whether this is a last segment, in a folder without a clean shutdown. Its indexes may be preallocated and incomplete."""
    is_cut: bool
    """Whether the log has bytes after its last valid batch, because it is damaged or growing."""
    table: BatchTable
    offsets: IndexContent | None
    offset_entries: list[OffsetEntry]
    times: IndexContent | None
    time_entries: list[TimeEntry]
    reader: TimeEntryReader


def prepare(segment: Segment, size_bytes: int, *, is_live: bool) -> Prepared:
    """Read a segment whose `.log` is verified up to `size_bytes`. Raises StorageError, SegmentChangedError."""
    table = BatchTable(scan_log(segment.file, size_bytes, segment.base_offset, EVERY_BATCH))
    offsets, times = read_indexes(segment)
    reader = TimeEntryReader(table, segment.file, segment.next_base_offset)
    times = None if times is None else _with_zero_entry(times, table)
    offset_entries = [] if offsets is None else read_entries(offsets.data, table, segment.file)
    time_entries = [] if times is None else reader.read(times.data)
    is_cut = (segment.file.size_bytes() if is_live else size_bytes) > table.end_position
    if is_cut:
        offset_entries = _up_to(offset_entries, lambda entry: entry.position < table.end_position)
        time_entries = _up_to(time_entries, lambda entry: entry.relative < table.next_offset - table.base_offset)
    return Prepared(segment, is_live, is_cut, table, offsets, offset_entries, times, time_entries, reader)


def _with_zero_entry(times: IndexContent, table: BatchTable) -> IndexContent:
    """Return the content of a time index. If its first slot of zeros is a valid entry (timestamp 0 at the base offset), count it
    as an entry, although it looks like padding.
    """
    is_first = bool(table.timestamps) and (table.timestamps[0], table.last_offsets[table.risen_at[0]]) == (0, 0)
    if times.data or not times.padding_bytes or not is_first:
        return times
    return times._replace(data=bytes(TIME_ENTRY_BYTES), padding_bytes=times.padding_bytes - TIME_ENTRY_BYTES)


def _up_to(entries: list[_Entry], is_known: Callable[[_Entry], bool]) -> list[_Entry]:
    """Return the entries up to the last one for the verified part of the log."""
    end = len(entries)
    while end and not is_known(entries[end - 1]):
        end -= 1
    return entries[:end]


# --- by which rules


class Survey:
    """Infers the rules by which a partition's indexes were written."""

    def __init__(self, preferred: Sequence[int], given_interval_bytes: int | None) -> None:
        """`preferred` are likely intervals. If an interval is given, none is inferred."""
        self.forms = FormSurvey()
        self.times = TimeFormSurvey()
        self._votes = IntervalVotes()
        self._preferred = preferred
        self._given = given_interval_bytes

    def add(self, prepared: Iterable[Prepared]) -> None:
        """Add some of the partition's segments."""
        every = list(prepared)
        for one in every:
            self._add_forms(one)
        for one in every:
            _vote(self._votes, one, self._forms_of(one))

    def add_usual(self, one: Prepared) -> None:
        """Add a segment whose indexes are what Kafka 3.9.1 writes."""
        self._add_forms(one)
        _vote(self._votes, one, self._forms_of(one))

    def _add_forms(self, one: Prepared) -> None:
        self.forms.add(one.offset_entries, one.table, _timestamps(one), one.segment.file)
        self.times.add(one.time_entries, one.reader)

    @property
    def is_older(self) -> bool:
        """Whether the indexes were written by an older release than 3.9.1."""
        return self.forms.is_older or self.times.is_older

    def rules(self, one: Prepared) -> IndexRules:
        """Return the rules by which a segment was indexed."""
        forms = self._forms_of(one)
        if self._given is not None:
            return IndexRules(self._given, forms)
        interval = self._votes.best(self._preferred)
        votes = IntervalVotes()
        _vote(votes, one, forms)
        if votes.closed >= OWN_INTERVAL_GAPS and 2 * votes.explained(interval) < votes.count:
            interval = votes.best(self._preferred)
        return IndexRules(interval, forms)

    def _forms_of(self, one: Prepared) -> frozenset[Form]:
        """Return the forms that count as correct in a segment. The segment and the surveyed segments may be from different
        releases.
        """
        own = FormSurvey()
        own.add(one.offset_entries, one.table, _timestamps(one), one.segment.file)
        # Releases without a time index wrote first offsets; a single entry is not enough evidence.
        oldest = frozenset({Form.FIRST}) if one.times is None else frozenset()
        return self.forms.accepted | own.accepted | oldest


def _vote(votes: IntervalVotes, one: Prepared, forms: frozenset[Form]) -> None:
    add_gaps(votes, one.table, chain_of(_trusted(one, forms), forms), has_sets=IndexRules(0, forms).has_sets)


def _timestamps(one: Prepared) -> frozenset[int]:
    return frozenset(entry.timestamp for entry in one.time_entries if entry.form is not None)


def _trusted(one: Prepared, forms: frozenset[Form]) -> list[OffsetEntry]:
    """Return the entries. An entry that contradicts the rules or the time index is marked as wrong."""
    times = _timestamps(one)
    return [
        entry._replace(form=None)
        if entry.form not in forms or (entry.form is Form.SET and times and set_verdict(entry, one.table, times) is False)
        else entry
        for entry in one.offset_entries
    ]


# --- the comparison


class Checked(NamedTuple):
    """The result of `check`."""

    findings: list[Finding]
    rules: IndexRules
    """The rules by which the segment was compared."""
    forms: Counter[tuple[str, Form | TimeForm]]
    """The number of correct entries, by the file's suffix and the entry's form."""


def check(one: Prepared, survey: Survey, restarts: Iterable[int] = ()) -> Checked:
    """Compare a segment's offset index and time index with its log.

    `restarts` are offsets at which other evidence shows a possible broker restart.
    """
    rules = survey.rules(one)
    forms: Counter[tuple[str, Form | TimeForm]] = Counter()
    entries = _trusted(one, rules.forms)
    starts = _starts(one, survey, rules, restarts)
    findings: list[Finding] = []
    indexed: list[OffsetEntry] = []
    if one.offsets is None:
        is_due = one.table.beyond(rules.interval_bytes) < len(one.table)
        findings += _missing_file(one, names.INDEX_SUFFIX, is_due=is_due)
    else:
        content = one.offsets
        checked = check_offset_index(content, entries, one.table, rules, starts)
        if checked.findings and one.is_live and content.padding_bytes:
            first = min(finding.entry or 0 for finding in checked.findings)
            before = check_offset_index(content, entries[:first], one.table, rules, starts)
            if not before.findings:
                checked = before
                findings.append(_stale(content.path, len(entries) - first))
        indexed = checked.trusted
        findings += shortened(checked.findings)
        forms.update((names.INDEX_SUFFIX, entry.form) for entry in indexed if entry.form is not None)
        findings += _started(content.path, checked.started_at)
        findings += _length_faults(content, one.is_live)
    times = _check_times(one, survey, indexed)
    forms.update({(names.TIME_INDEX_SUFFIX, form): count for form, count in times.forms.items()})
    return Checked(findings + times.findings, rules, forms)


def _check_times(one: Prepared, survey: Survey, indexed: list[OffsetEntry]) -> CheckedTimes:
    content = one.times
    if content is None:
        is_due = bool(required_rises(one.table, indexed, is_finished=False))
        return CheckedTimes(_missing_file(one, names.TIME_INDEX_SUFFIX, is_due=is_due), Counter())
    is_finished = not (one.is_cut or (one.is_live and content.padding_bytes))
    required = required_rises(one.table, indexed, is_finished=is_finished)
    checked = check_time_index(content, one.time_entries, one.table, required, one.reader, survey.times)
    findings: list[Finding] = []
    if checked.findings and one.is_live and content.padding_bytes:
        first = min(finding.entry or 0 for finding in checked.findings)
        before = check_time_index(content, one.time_entries[:first], one.table, required, one.reader, survey.times)
        if not before.findings:
            checked = before
            findings.append(_stale(content.path, len(one.time_entries) - first))
    findings += shortened(checked.findings)
    return CheckedTimes([*findings, *_length_faults(content, one.is_live)], checked.forms)


def _starts(one: Prepared, survey: Survey, rules: IndexRules, offsets: Iterable[int]) -> Starts:
    table = one.table
    entries = [entry if survey.times.accepts(entry, one.reader) else entry._replace(form=None) for entry in one.time_entries]
    chain = chain_of(_trusted(one, rules.forms), rules.forms)
    explained = required_rises(table, chain, is_finished=True)
    return Starts(table, entries, explained, offsets, lambda batch: survey.is_older or one.reader.kind(batch).magic < 2)


# --- what is said

MISSING = "the file is missing"


def _missing_file(one: Prepared, suffix: str, *, is_due: bool) -> list[Finding]:
    if len(one.table) == 0 or (one.is_live and not is_due):
        return []
    return [Finding(index_path(one.segment.log_path, suffix), MISSING)]


def _length_faults(content: IndexContent, is_live: bool) -> list[Finding]:
    findings = []
    end = len(content.data)
    if content.padding_bytes and not is_live:
        what = f"{content.padding_bytes} zero bytes follow the entries; Kafka reads them as entries"
        findings.append(Finding(content.path, what, position=end))
    if content.ragged_bytes:
        what = f"the length is not a multiple of the entry size: {content.ragged_bytes} bytes too many"
        findings.append(Finding(content.path, what, position=end + content.padding_bytes))
    return findings


def _stale(path: FilePath, count: int) -> Finding:
    return Finding(path, f"{_count(count)} after the correct ones, left by a truncation", kind="note")


def _started(path: FilePath, positions: Sequence[int]) -> list[Finding]:
    if not positions:
        return []
    others = f", and in {len(positions) - 1} more places" if len(positions) > 1 else ""
    what = f"the index interval starts again at byte {positions[0]} of the log{others}: the broker was restarted there"
    return [Finding(path, what, kind="note")]


def _count(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
