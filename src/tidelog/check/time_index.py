"""Checks one segment's time index: the rule by which its entries were written (spec §2.1, §16), and whether it is correct and
complete.

An entry's timestamp must have been the largest so far at some batch. Its offset depends on the release that wrote it:

| form | the offset is | written by |
|---|---|---|
| `LAST` | the last of the batch that first reached the timestamp | Kafka 3.9.1, Tidelog; older releases for many batches |
| `RECORD` | the offset of the record that first reached it | older releases, for batches that they did not change |
| `TEXT` | one above the last offset in the log at that moment | no release, but the text of KIP-33 says so |
| `FILE_TIME` | the segment's first, or the next segment's base | no release, but the same text; the timestamp is the file's |
| `UNSTORED` | a v0 message's; the timestamp is its append time | Kafka, for v0 topics with LogAppendTime: v0 cannot store it |

An entry of no form is wrong. `FILE_TIME` is for segments without timestamps: its timestamp is the file's modification time.

The index is correct and complete (spec §2.5, §4.2) if every entry is correct, the entries ascend, and none is missing. An entry
is written with each offset index entry if the largest timestamp has risen since the previous one. Another entry is written at the
roll and at the close, so that a finished segment's last entry is its largest timestamp. A correct entry that neither explains was
written by a close after which the log continued: it is evidence of a restart (`interval_votes`).
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from struct import iter_unpack
from typing import NamedTuple

from tidelog.check.batch_table import BatchTable, longest_ascending
from tidelog.check.finding import Finding, show_time_entry
from tidelog.check.index_files import TIME_ENTRY_BYTES, IndexContent
from tidelog.errors import CorruptDataError
from tidelog.formats.files import ReadOnlyFile
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.records.records import first_record_at


class TimeForm(enum.Enum):
    """The rule by which a time index was written."""

    LAST = "with the batch's last offset"
    RECORD = "with that record's offset"
    TEXT = "with the next offset, as KIP-33's text has it"
    FILE_TIME = "with the file's time, as KIP-33's text has it"
    UNSTORED = "with append times of messages of v0, which cannot store them"


class TimeEntry(NamedTuple):
    """An entry with its recognized form."""

    slot: int
    timestamp: int
    relative: int
    form: TimeForm | None
    """None if the entry is wrong."""
    batch: int
    """The first batch with this timestamp or a later one; -1 if there is none."""


class _Kind(NamedTuple):
    """A batch's format, codec and timestamp type, which decide how an older broker indexed it."""

    magic: int
    codec: int
    timestamp_type: int


class TimeEntryReader:
    """Reads the time index of one segment."""

    def __init__(self, table: BatchTable, log: ReadOnlyFile, next_base_offset: int | None) -> None:
        self.base_offset = table.base_offset
        self._table = table
        self._log = log
        self._next_offsets = {table.next_offset, next_base_offset}

    def read(self, data: bytes) -> list[TimeEntry]:
        """Return the entries with their forms. Raises StorageError."""
        entries = []
        for slot, (timestamp, relative) in enumerate(iter_unpack(">qi", data)):
            batch = self._table.rise(timestamp)
            if batch is not None and self._table.last_offsets[batch] == relative:
                form: TimeForm | None = TimeForm.LAST
            elif batch is not None:
                form = self._form_of_rise(timestamp, relative, batch)
            else:
                form = self._form_without_rise(relative, is_alone=len(data) == 12)
            entries.append(TimeEntry(slot, timestamp, relative, form, -1 if batch is None else batch))
        return entries

    def _form_of_rise(self, timestamp: int, relative: int, batch: int) -> TimeForm | None:
        table = self._table
        if relative < table.last_offsets[batch]:
            return TimeForm.RECORD if self.record_offset(timestamp, batch) == relative + table.base_offset else None
        behind = table.holding(relative)  # all batches before it end below the offset
        if behind > table.next_rise(batch):
            return None
        if behind < len(table):
            header = self._header(behind)
            is_next = header.magic < 2 or header.base_offset >= relative + table.base_offset
        else:
            is_next = relative + table.base_offset in self._next_offsets
        return TimeForm.TEXT if is_next else None

    def _form_without_rise(self, relative: int, *, is_alone: bool) -> TimeForm | None:
        table = self._table
        ending = table.ending_at(relative)
        if ending is not None and self._header(ending).magic == 0:
            return TimeForm.UNSTORED
        if table.timestamps or not is_alone:
            return None
        is_first = len(table) > 0 and 0 <= relative <= table.last_offsets[0]
        is_next = relative + table.base_offset in self._next_offsets
        return TimeForm.FILE_TIME if is_first or is_next or relative == 0 else None

    def record_offset(self, timestamp: int, batch: int) -> int | None:
        """Return the offset of the first record in a batch at or after a timestamp."""
        try:
            header = self._header(batch)
            found = first_record_at(header, self._log.read(header.position, header.size), timestamp, path=self._log.path)
        except CorruptDataError:
            return None
        return None if found is None else found[0]

    def kind(self, batch: int) -> _Kind:
        """Return the batch's format, codec and timestamp type, which decide how an older broker indexed the batch."""
        header = self._header(batch)
        return _Kind(header.magic, header.attributes & 7, header.timestamp_type)

    def _header(self, batch: int) -> BatchHeader:
        position = self._table.positions[batch]
        return read_header(self._log.read(position, HEADER_BYTES), 0, position, self._log.path)


MOST_COMPARED = 200
"""The largest number of entries per segment that are checked to find the rule by which the index was written."""


class TimeFormSurvey:
    """Counts the forms of a partition's time index entries. `accepts` returns whether an entry counts as correct."""

    def __init__(self) -> None:
        self._records: Counter[_Kind] = Counter()
        self._lasts: Counter[_Kind] = Counter()
        self._texts = self.entries = 0
        """`entries` counts all entries in the partition, including those in segments that were not surveyed."""

    def add(self, entries: Sequence[TimeEntry], reader: TimeEntryReader) -> None:
        """Add the entries of one segment."""
        self.entries += len(entries)
        for entry in entries:
            self._texts += entry.form is TimeForm.TEXT
            if entry.form is TimeForm.RECORD:
                self._records[reader.kind(entry.batch)] += 1
        if not self._records:
            return
        for entry in [one for one in entries if one.form is TimeForm.LAST][:MOST_COMPARED]:
            kind = reader.kind(entry.batch)
            if (
                kind in self._records
                and reader.record_offset(entry.timestamp, entry.batch) != entry.relative + reader.base_offset
            ):
                self._lasts[kind] += 1

    @property
    def is_older(self) -> bool:
        """Whether several entries follow only the rules of older releases; a single one may be damage."""
        return sum(self._records.values()) > 1

    def accepts(self, entry: TimeEntry, reader: TimeEntryReader) -> bool:
        """Return whether an entry counts as correct."""
        if entry.form is TimeForm.TEXT:
            # A single such entry among many is damage.
            return self._texts > 1 or self.entries == 1
        if entry.form is not TimeForm.RECORD:
            return entry.form is not None
        # One or two such entries among entries of the other rule may be damage.
        kind = reader.kind(entry.batch)
        return self._lasts[kind] == 0 or self._records[kind] >= 3


# --- the comparison


class CheckedTimes(NamedTuple):
    """The result of `check_time_index`."""

    findings: list[Finding]
    forms: Counter[TimeForm]
    """The forms of the correct entries."""


def check_time_index(
    content: IndexContent,
    entries: Sequence[TimeEntry],
    table: BatchTable,
    required: Sequence[int],
    reader: TimeEntryReader,
    survey: TimeFormSurvey,
) -> CheckedTimes:
    """Compare the entries of a time index with the batches of its log."""
    true = [entry for entry in entries if survey.accepts(entry, reader)]
    chosen = [true[place] for place in longest_ascending([entry.timestamp for entry in true])]
    chosen = [
        one for before, one in zip([None, *chosen], chosen, strict=False) if before is None or before.relative <= one.relative
    ]
    there = {entry.timestamp for entry in chosen}
    absent = [rise for rise in required if table.timestamps[rise] not in there]
    findings: list[Finding] = []
    next_slot, next_absent = 0, 0
    for end, entry in [*((one.slot, one) for one in chosen), (len(entries), None)]:
        first_absent = next_absent
        while next_absent < len(absent) and (entry is None or table.timestamps[absent[next_absent]] < entry.timestamp):
            next_absent += 1
        findings += _reported(content, entries[next_slot:end], absent[first_absent:next_absent], end, table)
        next_slot = end + 1
    return CheckedTimes(findings, Counter(entry.form for entry in chosen if entry.form is not None))


def _reported(
    content: IndexContent, wrong: Sequence[TimeEntry], missing: Sequence[int], slot: int, table: BatchTable
) -> Iterator[Finding]:
    """Yield the faults between two correct entries. A wrong entry and an entry that is missing at its place are one fault."""
    expected = [_show(table, rise) for rise in missing]
    for number, entry in enumerate(wrong):
        found = show_time_entry(entry.timestamp, table.base_offset + entry.relative)
        what, expects = _fault(entry, table), expected[number] if number < len(expected) else None
        if expects is None and entry.batch >= 0:
            expects = show_time_entry(entry.timestamp, table.base_offset + table.last_offsets[entry.batch])
        yield Finding(content.path, what, entry.slot, entry.slot * TIME_ENTRY_BYTES, found, expects)
    left = expected[len(wrong) :]
    if left:
        what = "an entry is missing" if len(left) == 1 else f"{len(left)} entries are missing, the first one"
        yield Finding(content.path, what, slot, slot * TIME_ENTRY_BYTES, expected=left[0], is_sparse=True)


def _fault(entry: TimeEntry, table: BatchTable) -> str:
    if entry.batch < 0:
        return "that was never the largest timestamp"
    if entry.relative == table.last_offsets[entry.batch]:
        return "the entry is out of order"
    return "the offset is not that of the batch that first reached the timestamp"


def _show(table: BatchTable, rise: int) -> str:
    offset = table.base_offset + table.last_offsets[table.risen_at[rise]]
    return show_time_entry(table.timestamps[rise], offset)
