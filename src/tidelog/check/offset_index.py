"""Checks one segment's offset index: the rule by which its entries were written (spec §4.2), and whether it is correct and
complete.

Each entry must point to the start of a batch. Its offset depends on the release that wrote it:

| form | the offset is | written by |
|---|---|---|
| `BATCH` | the batch's last | Kafka 3.9.1 and Tidelog for every batch; older releases for a batch appended alone |
| `SET` | the last of a later batch of the same append | Kafka 2.0 to 3.9.0, followers, and messages of v0 and v1 |
| `FIRST` | the batch's first | Kafka up to 1.1 |
| `KEPT` | that of the last record that compaction left in the batch, or in a later one appended with it | Kafka up to 3.9.0 |

An entry of no form is wrong. An entry of the last three forms may be correct, or damage that happens to look correct. The other
entries decide (`FormSurvey`), and so does the time index, which gets an entry at the same time.

The index is correct and complete if every entry is correct, none is missing, and none is superfluous. An entry is due at the
first batch that starts more than index.interval.bytes after the previously indexed one, counted from the segment's start. A
broker restart resets that count. The larger gap is then correct if something else shows the restart (`interval_votes`). Without
evidence for or against a restart, the gap is reported as a fault, and the report says that it is uncertain.

If several batches were appended at once (`Form.SET`), only the first of them can have an entry. The start of an append is known
only directly after an entry, so a missing entry may go unnoticed in such an index.
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
    """The rule by which an offset index was written."""

    BATCH = "for every batch"
    SET = "for several batches appended at once"
    FIRST = "with first offsets"
    KEPT = "with the last offset that compaction left"


class OffsetEntry(NamedTuple):
    """An entry with its recognized form."""

    slot: int
    relative: int
    position: int
    form: Form | None
    """None if the entry is wrong."""
    batch: int
    """The batch to which it points; -1 if it does not point to the start of a batch."""
    last_batch: int
    """The last batch that was appended together with `batch`, if known."""


def read_entries(data: bytes, table: BatchTable, log: ReadOnlyFile) -> list[OffsetEntry]:
    """Return an offset index's entries with their forms. Raises StorageError."""
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
    """Return the offsets of the first and last record in a batch; the first is read from the header if the header has it."""
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
    """Counts the forms of the offset index entries in some segments. `accepted` returns the forms that a release wrote there."""

    def __init__(self) -> None:
        self.counts: Counter[Form] = Counter()
        self._confirmed = self._of_messages = self._wide = 0

    def add(self, entries: list[OffsetEntry], table: BatchTable, times: Set[int], log: ReadOnlyFile) -> None:
        """Add the entries of one segment; `times` are the timestamps in its time index."""
        self.counts.update(entry.form for entry in entries if entry.form is not None)
        if any(entry.form is Form.FIRST for entry in entries):
            # Only a batch with several offsets shows which offset its entry has. One release rarely wrote a whole partition.
            self._wide += sum(entry.form is not None and _is_wide(table, entry.batch) for entry in entries)
        for entry in entries:
            if entry.form is Form.SET:
                self._confirmed += set_verdict(entry, table, times) is True
                self._of_messages += _is_plain_message(log, entry.position)

    @property
    def is_older(self) -> bool:
        """Whether some entries follow only the rules of older releases."""
        return any(self.counts[form] for form in self.accepted if form is not Form.BATCH)

    @property
    def accepted(self) -> frozenset[Form]:
        """Return the forms that count as correct."""
        found = {Form.BATCH, Form.KEPT}
        total = sum(self.counts.values())
        sets, firsts = self.counts[Form.SET], self.counts[Form.FIRST]
        # A single entry may be damage. Releases before 3.9.1 indexed v0 and v1 messages as sets of batches.
        if self._confirmed or self._of_messages or (sets >= 3 and 50 * sets >= total):
            found.add(Form.SET)
        if firsts >= 2 and 5 * firsts >= self._wide:
            found.add(Form.FIRST)
        return frozenset(found)


def set_verdict(entry: OffsetEntry, table: BatchTable, times: Set[int]) -> bool | None:
    """Return True if the time index confirms an entry for several batches, False if it contradicts the entry, None if neither.

    If the first batch had been appended alone, the time index would have the largest timestamp up to that batch.
    """
    alone, together = table.rise_up_to(entry.batch), table.rise_up_to(entry.last_batch)
    if alone == together:
        return None
    if table.timestamps[together] not in times:
        return False
    return True if alone < 0 or table.timestamps[alone] not in times else None


def _is_wide(table: BatchTable, batch: int) -> bool:
    """Whether a batch has several offsets, judged by the previous batch's last offset."""
    before = table.last_offsets[batch - 1] if batch else -1
    return table.last_offsets[batch] - before > 1


def _is_plain_message(log: ReadOnlyFile, position: int) -> bool:
    header: BatchHeader = read_header(log.read(position, HEADER_BYTES), 0, position, log.path)
    return header.magic < 2 and header.codec is Codec.NONE


# --- the comparison


LARGEST_APPEND_BYTES = 1_048_588
"""The largest append: max.message.bytes by default."""


_OUT_OF_PLACE = "a misplaced entry"


class IndexRules(NamedTuple):
    """The rules by which a partition was indexed."""

    interval_bytes: int
    forms: frozenset[Form] = frozenset({Form.BATCH})

    @property
    def has_sets(self) -> bool:
        """Whether the partition's appends may contain several batches."""
        return Form.SET in self.forms or Form.FIRST in self.forms


class CheckedOffsets(NamedTuple):
    """The result of `check_offset_index`."""

    findings: list[Finding]
    trusted: list[OffsetEntry]
    """The correct entries, in order."""
    started_at: list[int]
    """Byte positions in the log at which gaps show a broker restart."""


def chain_of(entries: Sequence[OffsetEntry], forms: frozenset[Form]) -> list[OffsetEntry]:
    """Return the entries with a form in `forms`, in ascending order of their batches. Entries out of order are left out."""
    true = [entry for entry in entries if entry.form in forms]
    chosen = [true[place] for place in longest_ascending([entry.batch for entry in true])]
    following = [*chosen[1:], None]
    return [one for one, after in zip(chosen, following, strict=False) if after is None or one.last_batch < after.batch]


def add_gaps(
    votes: IntervalVotes, table: BatchTable, chain: Sequence[OffsetEntry], *, has_sets: bool, is_cut: bool = False
) -> None:
    """Add the gaps between the entries in `chain` as votes for the interval, and the gap after the last entry unless the log
    `is_cut`.
    """
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
    """Compare the entries of an offset index with the batches of its log."""
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
        """Batches whose missing entry may be correct."""

    def run(self) -> CheckedOffsets:
        table = self._table
        findings: list[Finding] = []
        trusted: list[OffsetEntry] = []
        origin, last_batch, next_slot = 0, -1, 0
        for entry in chain_of(self._entries, self._rules.forms):
            missing = self._missing(origin, last_batch, entry.batch, has_wrong=next_slot < entry.slot)
            if missing is None:
                continue  # The entry comes too early: it is reported with the wrong entries, below.
            findings += self._reported(self._entries[next_slot : entry.slot], missing, entry.slot)
            trusted.append(entry)
            origin, last_batch, next_slot = entry.position, entry.last_batch, entry.slot + 1
        missing = self._missing(origin, last_batch, len(table), has_wrong=next_slot < len(self._entries)) or []
        findings += self._reported(self._entries[next_slot:], missing, len(self._entries))
        return CheckedOffsets(findings, trusted, self._started_at)

    # --- what is due

    def _missing(self, origin: int, last_batch: int, batch: int, *, has_wrong: bool) -> list[int] | None:
        """Return the batches between `origin` and `batch` that should have an entry; None if `batch` itself should not have one.

        `batch` may be the number of batches, which stands for the end of the log. `has_wrong` is whether wrong entries lie in
        between; they explain the gap better than a restart.
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
            # If entries were lost, the following entries are at their regular positions.
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
        # One append that began within the interval explains the gap, unless the gap exceeds the largest append.
        end = positions[batch] if batch < len(positions) else self._table.end_position
        return [due] if end - positions[max(due - 1, 0)] > LARGEST_APPEND_BYTES else []

    def _is_after_start(self, origin: int, batch: int, may_start: Callable[[int], bool]) -> bool:
        """Whether one or more restarts explain that the next entry is at `batch`. `may_start` says which batches may
        follow a restart.
        """
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
        """Whether one broker restart at any batch would explain that the next entry is at `batch`."""
        table, interval = self._table, self._rules.interval_bytes
        due = table.beyond(origin + interval)
        starts = range(table.beyond(origin), min(due + 1, len(table)))
        return any(table.beyond(table.positions[start] + interval) == batch for start in starts)

    # --- what is said

    def _reported(self, wrong: Sequence[OffsetEntry], missing: list[int], slot: int) -> Iterator[Finding]:
        """Yield the faults between two correct entries. A wrong entry and an entry that is missing at its place are one fault."""
        for entry, batch in zip(wrong, missing, strict=False):
            yield self._finding(entry, self._show(batch))
        for entry in wrong[len(missing) :]:
            yield self._finding(entry, None)
        left = missing[len(wrong) :]
        if left:
            count = "an entry is missing" if len(left) == 1 else f"{len(left)} entries are missing, the first one"
            doubt = ", or the broker was restarted there: it is unknown which" if left[0] in self._doubtful else ""
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
    """Return the numbers of the rises that need a time index entry: each rise at an offset index entry, and the last rise."""
    # An entry with a batch's first offset does not show which batches were appended together.
    rises = {table.rise_up_to(entry.last_batch) for entry in indexed if entry.form is not Form.FIRST}
    if is_finished:
        rises.add(len(table.timestamps) - 1)
    rises.discard(-1)
    return sorted(rises)
