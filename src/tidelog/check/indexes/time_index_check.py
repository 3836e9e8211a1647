"""Whether a time index is right and complete (spec §2.5, §4.2): every entry true, ascending, and none missing.

A time index gets an entry together with each one of the offset index, if the largest timestamp has risen since the last; and one
more at the roll and at the close, so that a finished segment's last entry is its largest timestamp. An entry that is true and
that neither of these explains was written by a close after which the log went on: it is right, and tells of that
(`broker_starts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.check.indexes.ascending import longest_ascending
from tidelog.check.indexes.batch_table import BatchTable
from tidelog.check.indexes.index_content import TIME_ENTRY_BYTES, IndexContent
from tidelog.check.indexes.index_finding import Finding, show_time_entry
from tidelog.check.indexes.offset_entry_forms import Form, OffsetEntry
from tidelog.check.indexes.time_entry_forms import TimeEntry, TimeEntryReader, TimeForm, TimeFormSurvey


class CheckedTimes(NamedTuple):
    """What was found."""

    findings: list[Finding]
    forms: Counter[TimeForm]
    """Of the entries that are right."""


def required_rises(table: BatchTable, indexed: Sequence[OffsetEntry], *, is_finished: bool) -> list[int]:
    """Return the rises that must have an entry, by number: those with the offset index's entries, and the last one of all."""
    # What was appended together with an entry of first offsets nobody knows.
    rises = {table.rise_up_to(entry.last_batch) for entry in indexed if entry.form is not Form.FIRST}
    if is_finished:
        rises.add(len(table.timestamps) - 1)
    rises.discard(-1)
    return sorted(rises)


def check_time_index(
    content: IndexContent,
    entries: Sequence[TimeEntry],
    table: BatchTable,
    required: Sequence[int],
    reader: TimeEntryReader,
    survey: TimeFormSurvey,
) -> CheckedTimes:
    """Compare the entries of a file with a log."""
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
        findings += _told(content, entries[next_slot:end], absent[first_absent:next_absent], end, table)
        next_slot = end + 1
    return CheckedTimes(findings, Counter(entry.form for entry in chosen if entry.form is not None))


def _told(
    content: IndexContent, wrong: Sequence[TimeEntry], missing: Sequence[int], slot: int, table: BatchTable
) -> Iterator[Finding]:
    """Yield what is wrong between two entries that are right: as many as are missing are wrong in their place."""
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
        return "the largest timestamp was never that"
    if entry.relative == table.last_offsets[entry.batch]:
        return "an entry out of order"
    return "the offset is not that of the batch that first reached the timestamp"


def _show(table: BatchTable, rise: int) -> str:
    offset = table.base_offset + table.last_offsets[table.risen_at[rise]]
    return show_time_entry(table.timestamps[rise], offset)
