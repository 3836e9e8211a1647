"""One segment's offset index: what its entries say, by whose rule (spec §4.2), and whether it is right and complete.

Each entry must point at the start of a batch. Its offset depends on its writer:

| form | the offset is | written by |
|---|---|---|
| `BATCH` | the batch's last | Kafka 3.9.1 and Tidelog for every batch; older ones where one batch was appended by itself |
| `SET` | the last of a later batch: several were appended at once | Kafka 2.0 to 3.9.0, followers, and messages of v0 and v1 |
| `FIRST` | the batch's first | Kafka up to 1.1 |
| `KEPT` | that of the last record that compaction left in the batch, or in a later one appended with it | Kafka up to 3.9.0 |

An entry of no form is wrong. One of the lower three forms may be right or may be damage that happens to look like it; that shows
in the company it keeps (`FormSurvey`), and in the time index, which gets an entry with it.

The index is right and complete if every entry is true, none is missing, and none is too many. An entry is due at the first batch
that starts more than index.interval.bytes after the one that was indexed before, counted from the segment's start. Where the
broker was started again it counts from there: such a gap is right if something else shows the start (`index_rules`). If
nothing decides either way, it is called a fault, and the doubt is mentioned.

Where several batches were appended at once (`Form.SET`), only the first of them can have an entry, and where an append began is
known only after an entry; so there an entry that is missing may go unnoticed.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from struct import iter_unpack
from typing import NamedTuple

from tidelog.check.batch_table import BatchTable, longest_ascending
from tidelog.check.finding import Finding, show_offset_entry
from tidelog.check.index_files import OFFSET_ENTRY_BYTES, IndexContent
from tidelog.check.interval_votes import IntervalVotes, Starts
from tidelog.errors import CorruptDataError
from tidelog.formats.files import ReadOnlyFile
from tidelog.records.batch import HEADER_BYTES, BatchHeader, read_header
from tidelog.records.compression import Codec
from tidelog.records.kernel import Rows
from tidelog.records.scanner import scan_batch


class Form(enum.Enum):
    """The rule that an offset index was written by."""

    BATCH = "for every batch"
    SET = "for several batches appended at once"
    FIRST = "with first offsets"
    KEPT = "with the last offset that compaction left"


class OffsetEntry(NamedTuple):
    """An entry with what it is taken for."""

    slot: int
    relative: int
    position: int
    form: Form | None
    """None: it is wrong."""
    batch: int
    """The batch that it points at; -1 if it points at none's start."""
    last_batch: int
    """The last one that was appended with it, as far as is known."""


def read_entries(data: bytes, table: BatchTable, log: ReadOnlyFile) -> list[OffsetEntry]:
    """Return the entries of an offset index, each with its form. Raises StorageError."""
    entries = []
    for slot, (relative, position) in enumerate(iter_unpack(">ii", data)):
        batch = table.at(position)
        if batch is None:
            entries.append(OffsetEntry(slot, relative, position, None, -1, -1))
        elif table.last_offsets[batch] == relative:
            entries.append(OffsetEntry(slot, relative, position, Form.BATCH, batch, batch))
        else:
            form, last = _older_form(table, log, batch, relative)
            entries.append(OffsetEntry(slot, relative, position, form, batch, last))
    return entries


def _older_form(table: BatchTable, log: ReadOnlyFile, batch: int, relative: int) -> tuple[Form | None, int]:
    holding = table.holding(relative)
    if holding < batch or holding == len(table):
        return None, batch
    if table.last_offsets[holding] == relative:
        return Form.SET, holding
    offsets = _offsets_of(log, table.positions[holding])
    if offsets is None:
        return None, batch
    if holding == batch and relative + table.base_offset == offsets[0]:
        return Form.FIRST, batch
    return (Form.KEPT, holding) if relative + table.base_offset == offsets[1] else (None, batch)


def _offsets_of(log: ReadOnlyFile, position: int) -> tuple[int, int] | None:
    """Return the first and the last offset of the records in a batch; its header's first where that says one."""
    rows = Rows()
    try:
        header = read_header(log.read(position, HEADER_BYTES), 0, position, log.path)
        count, _ = scan_batch(rows, header, log.read(position, header.size), path=log.path)
    except CorruptDataError:
        return None
    if count == 0:
        return None
    offsets = rows.column("offset")
    return header.base_offset if header.magic == 2 else offsets[0], offsets[-1]


class FormSurvey:
    """The forms of the offset index entries of some segments; `accepted` are those that some release writes."""

    def __init__(self) -> None:
        self.counts: Counter[Form] = Counter()
        self._confirmed = self._of_messages = self._wide = 0

    def add(self, entries: list[OffsetEntry], table: BatchTable, times: Set[int], log: ReadOnlyFile) -> None:
        """Take the entries of one segment; `times` are the timestamps in its time index."""
        self.counts.update(entry.form for entry in entries if entry.form is not None)
        if any(entry.form is Form.FIRST for entry in entries):
            # Only a batch of several offsets shows which of them its entry has; a release rarely wrote all of a partition.
            self._wide += sum(entry.form is not None and _is_wide(table, entry.batch) for entry in entries)
        for entry in entries:
            if entry.form is Form.SET:
                self._confirmed += set_verdict(entry, table, times) is True
                self._of_messages += _is_plain_message(log, entry.position)

    @property
    def is_older(self) -> bool:
        """Whether some are by the rules of older releases only."""
        return any(self.counts[form] for form in self.accepted if form is not Form.BATCH)

    @property
    def accepted(self) -> frozenset[Form]:
        """Return the forms that count as right."""
        found = {Form.BATCH, Form.KEPT}
        total = sum(self.counts.values())
        sets, firsts = self.counts[Form.SET], self.counts[Form.FIRST]
        # Once may be damage. Sets of single messages are how v0 and v1 were written before 3.9.1.
        if self._confirmed or self._of_messages or (sets >= 3 and 50 * sets >= total):
            found.add(Form.SET)
        if firsts >= 2 and 5 * firsts >= self._wide:
            found.add(Form.FIRST)
        return frozenset(found)


def set_verdict(entry: OffsetEntry, table: BatchTable, times: Set[int]) -> bool | None:
    """Say what the time index holds of an entry that stands for several batches: it confirms, contradicts, or says nothing.

    Had only the first been appended, the largest timestamp up to there would be noted.
    """
    alone, together = table.rise_up_to(entry.batch), table.rise_up_to(entry.last_batch)
    if alone == together:
        return None
    if table.timestamps[together] not in times:
        return False
    return True if alone < 0 or table.timestamps[alone] not in times else None


def _is_wide(table: BatchTable, batch: int) -> bool:
    """Whether a batch has several offsets, as far as the last offset of the one before shows."""
    before = table.last_offsets[batch - 1] if batch else -1
    return table.last_offsets[batch] - before > 1


def _is_plain_message(log: ReadOnlyFile, position: int) -> bool:
    header: BatchHeader = read_header(log.read(position, HEADER_BYTES), 0, position, log.path)
    return header.magic < 2 and header.codec is Codec.NONE


# --- the comparison


LARGEST_APPEND_BYTES = 1_048_588
"""The largest append: max.message.bytes, unless it is changed."""


_OUT_OF_PLACE = "a misplaced entry"


class IndexRules(NamedTuple):
    """By which rules a partition was indexed."""

    interval_bytes: int
    forms: frozenset[Form] = frozenset({Form.BATCH})

    @property
    def has_sets(self) -> bool:
        """Whether several batches were appended at once."""
        return Form.SET in self.forms or Form.FIRST in self.forms


class CheckedOffsets(NamedTuple):
    """What was found."""

    findings: list[Finding]
    trusted: list[OffsetEntry]
    """The entries that are right, in order."""
    started_at: list[int]
    """Byte positions in the log at which the broker was started again, as gaps say."""


def chain_of(entries: Sequence[OffsetEntry], forms: frozenset[Form]) -> list[OffsetEntry]:
    """Return the entries that are true, by those rules, and in order."""
    true = [entry for entry in entries if entry.form in forms]
    chosen = [true[place] for place in longest_ascending([entry.batch for entry in true])]
    following = [*chosen[1:], None]
    return [one for one, after in zip(chosen, following, strict=False) if after is None or one.last_batch < after.batch]


def add_gaps(
    votes: IntervalVotes, table: BatchTable, chain: Sequence[OffsetEntry], *, has_sets: bool, is_cut: bool = False
) -> None:
    """Let the gaps between entries vote for the interval; the one after the last entry does not count if the log `is_cut`."""
    if not len(table):
        return
    positions = table.positions
    origin, last_batch = 0, 0 if has_sets else -1
    for entry in chain:
        if has_sets:
            behind = min(last_batch + 1, entry.batch)
            low = positions[behind] - origin if behind < entry.batch and origin else 0
        else:
            low = positions[entry.batch - 1] - origin if entry.batch else 0
        votes.add(max(low, 0), entry.position - origin)
        origin, last_batch = entry.position, entry.last_batch
    behind = last_batch + 1 if has_sets else len(table) - 1
    if is_cut:
        return
    if behind < len(table) and (origin or not has_sets):
        votes.add(positions[behind] - origin)


def check_offset_index(
    content: IndexContent, entries: Sequence[OffsetEntry], table: BatchTable, rules: IndexRules, starts: Starts
) -> CheckedOffsets:
    """Compare the entries of a file with a log."""
    return _Check(content, entries, table, rules, starts).run()


class _Check:
    def __init__(
        self,
        content: IndexContent,
        entries: Sequence[OffsetEntry],
        table: BatchTable,
        rules: IndexRules,
        starts: Starts,
    ) -> None:
        self._path = content.path
        self._entries = entries
        self._table = table
        self._rules = rules
        self._starts = starts
        self._started_at: list[int] = []
        self._doubtful: set[int] = set()
        """Batches that have no entry, which may be right."""

    def run(self) -> CheckedOffsets:
        table = self._table
        findings: list[Finding] = []
        trusted: list[OffsetEntry] = []
        origin, last_batch, next_slot = 0, -1, 0
        for entry in chain_of(self._entries, self._rules.forms):
            missing = self._missing(origin, last_batch, entry.batch, has_wrong=next_slot < entry.slot)
            if missing is None:
                continue  # Too early: told with the wrong ones, below.
            findings += self._reported(self._entries[next_slot : entry.slot], missing, entry.slot)
            trusted.append(entry)
            origin, last_batch, next_slot = entry.position, entry.last_batch, entry.slot + 1
        missing = self._missing(origin, last_batch, len(table), has_wrong=next_slot < len(self._entries)) or []
        findings += self._reported(self._entries[next_slot:], missing, len(self._entries))
        return CheckedOffsets(findings, trusted, self._started_at)

    # --- what is due

    def _missing(self, origin: int, last_batch: int, batch: int, *, has_wrong: bool) -> list[int] | None:
        """Return the batches between the one at `origin` and `batch` that should have an entry; None if `batch` should not.

        `batch` may be the number after the last one, which needs none. `has_wrong` entries between explain more than a start.
        """
        table, interval = self._table, self._rules.interval_bytes
        due = table.beyond(origin + interval)
        if batch < due:
            return None if batch < len(table) else []
        if due == batch:
            return []
        if self._rules.has_sets:
            return self._missing_of_sets(origin, last_batch, batch, due)
        missing, following = [], due
        while following < batch:
            missing.append(following)
            following = table.beyond(table.positions[following] + interval)
        starts = self._starts
        if not has_wrong and (
            self._is_after_start(origin, batch, starts.is_known)
            or (starts.is_not_indexed(due, last_batch, batch) and self._is_after_start(origin, batch, lambda _: True))
            # If entries were lost, those that follow stand where they would stand anyway.
            or (following != batch and self._is_after_start(origin, batch, starts.is_likely))
        ):
            return []
        if not has_wrong and starts.would_not_show(due, last_batch) and self._is_after_one_start(origin, batch):
            self._doubtful.add(due)
        return missing

    def _missing_of_sets(self, origin: int, last_batch: int, batch: int, due: int) -> list[int]:
        positions, interval = self._table.positions, self._rules.interval_bytes
        behind = last_batch + 1
        if origin and behind < batch and positions[behind] - origin > interval:
            if not self._starts.is_known(behind):
                return [behind]
            self._started_at.append(positions[behind])
            due = self._table.beyond(positions[behind] + interval)
        # One append, which began within the interval, explains the gap if it is no larger than appends are.
        end = positions[batch] if batch < len(positions) else self._table.end_position
        return [due] if end - positions[max(due - 1, 0)] > LARGEST_APPEND_BYTES else []

    def _is_after_start(self, origin: int, batch: int, may_start: Callable[[int], bool]) -> bool:
        """Whether one or more starts, at batches that `may_start` allows, explain that the next entry is that of `batch`."""
        table, interval = self._table, self._rules.interval_bytes
        waiting: list[tuple[int, tuple[int, ...]]] = [(origin, ())]
        seen = {origin}
        while waiting:
            position, starts = waiting.pop()
            due = table.beyond(position + interval)
            for start in range(table.beyond(position), min(due + 1, len(table))):
                if not may_start(start):
                    continue
                at = table.positions[start]
                after = table.beyond(at + interval)
                if after == batch:
                    self._started_at += [*starts, at]
                    return True
                if after < batch and at not in seen and len(seen) < 1000:
                    seen.add(at)
                    waiting.append((at, (*starts, at)))
        return False

    def _is_after_one_start(self, origin: int, batch: int) -> bool:
        """Whether one start of the broker, wherever it was, would explain that the next entry is that of `batch`."""
        table, interval = self._table, self._rules.interval_bytes
        due = table.beyond(origin + interval)
        starts = range(table.beyond(origin), min(due + 1, len(table)))
        return any(table.beyond(table.positions[start] + interval) == batch for start in starts)

    # --- what is said

    def _reported(self, wrong: Sequence[OffsetEntry], missing: list[int], slot: int) -> Iterator[Finding]:
        """Yield what is wrong between two entries that are right: as many as are missing are wrong in their place."""
        for entry, batch in zip(wrong, missing, strict=False):
            yield self._finding(entry, self._show(batch))
        for entry in wrong[len(missing) :]:
            yield self._finding(entry, None)
        left = missing[len(wrong) :]
        if left:
            count = "an entry is missing" if len(left) == 1 else f"{len(left)} entries are missing, the first one"
            doubt = ", or its broker was restarted there, which cannot be known" if left[0] in self._doubtful else ""
            place = slot * OFFSET_ENTRY_BYTES
            yield Finding(self._path, count + doubt, slot, place, expected=self._show(left[0]), is_sparse=True)

    def _finding(self, entry: OffsetEntry, expected: str | None) -> Finding:
        table = self._table
        if entry.batch < 0:
            what = "no batch starts there"
        elif entry.form not in self._rules.forms:
            what = "the offset is not the batch's last"
            expected = expected or show_offset_entry(
                table.base_offset + table.last_offsets[entry.batch], table.positions[entry.batch]
            )
        else:
            what = f"{_OUT_OF_PLACE}, with an interval of {self._rules.interval_bytes} bytes"
        found = show_offset_entry(table.base_offset + entry.relative, entry.position)
        is_sparse = what.startswith(_OUT_OF_PLACE)
        return Finding(self._path, what, entry.slot, entry.slot * OFFSET_ENTRY_BYTES, found, expected, is_sparse=is_sparse)

    def _show(self, batch: int) -> str:
        table = self._table
        return show_offset_entry(table.base_offset + table.last_offsets[batch], table.positions[batch])


def required_rises(table: BatchTable, indexed: Sequence[OffsetEntry], *, is_finished: bool) -> list[int]:
    """Return the rises that must have an entry, by number: those with the offset index's entries, and the last one of all."""
    # Which batches were appended together is unknown for an entry of first offsets.
    rises = {table.rise_up_to(entry.last_batch) for entry in indexed if entry.form is not Form.FIRST}
    if is_finished:
        rises.add(len(table.timestamps) - 1)
    rises.discard(-1)
    return sorted(rises)
