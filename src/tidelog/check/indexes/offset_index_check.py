"""Whether an offset index is right and complete (spec §4.2): every entry true, none missing, none too many.

An entry is due at the first batch that starts more than index.interval.bytes behind the one that was indexed before, counted
from the segment's start. Where the broker was started again it counts from there: such a gap is right if something else tells
of the start (`broker_starts`). If nothing tells either way, it is called a fault, and the doubt is told.

Where several batches were appended at once (`Form.SET`), only the first of them can have an entry, and where an append began is
known only behind an entry; so there an entry that is missing may go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidelog.check.indexes.ascending import longest_ascending
from tidelog.check.indexes.batch_table import BatchTable
from tidelog.check.indexes.broker_starts import Starts
from tidelog.check.indexes.index_content import OFFSET_ENTRY_BYTES, IndexContent
from tidelog.check.indexes.index_finding import Finding, show_offset_entry
from tidelog.check.indexes.index_interval import IntervalVotes
from tidelog.check.indexes.offset_entry_forms import Form, OffsetEntry

LARGEST_APPEND_BYTES = 1_048_588
"""What an append holds at most: max.message.bytes, as long as nobody changes it."""


_OUT_OF_PLACE = "an entry out of place"


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
    """Byte positions in the log at which the broker was started again, as gaps tell."""


def chain_of(entries: Sequence[OffsetEntry], forms: frozenset[Form]) -> list[OffsetEntry]:
    """Return the entries that are true, by those rules, and in order."""
    true = [entry for entry in entries if entry.form in forms]
    chosen = [true[place] for place in longest_ascending([entry.batch for entry in true])]
    following = [*chosen[1:], None]
    return [one for one, after in zip(chosen, following, strict=False) if after is None or one.last_batch < after.batch]


def add_gaps(
    votes: IntervalVotes, table: BatchTable, chain: Sequence[OffsetEntry], *, has_sets: bool, is_cut: bool = False
) -> None:
    """Let the gaps between entries vote for the interval; the one behind the last entry does not count if the log `is_cut`."""
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
            findings += self._told(self._entries[next_slot : entry.slot], missing, entry.slot)
            trusted.append(entry)
            origin, last_batch, next_slot = entry.position, entry.last_batch, entry.slot + 1
        missing = self._missing(origin, last_batch, len(table), has_wrong=next_slot < len(self._entries)) or []
        findings += self._told(self._entries[next_slot:], missing, len(self._entries))
        return CheckedOffsets(findings, trusted, self._started_at)

    # --- what is due

    def _missing(self, origin: int, last_batch: int, batch: int, *, has_wrong: bool) -> list[int] | None:
        """Return the batches between the one at `origin` and `batch` that should have an entry; None if `batch` should not.

        `batch` may be the number behind the last one, which needs none. `has_wrong` entries between explain more than a start.
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

    def _told(self, wrong: Sequence[OffsetEntry], missing: list[int], slot: int) -> Iterator[Finding]:
        """Yield what is wrong between two entries that are right: as many as are missing are wrong in their place."""
        for entry, batch in zip(wrong, missing, strict=False):
            yield self._finding(entry, self._show(batch))
        for entry in wrong[len(missing) :]:
            yield self._finding(entry, None)
        left = missing[len(wrong) :]
        if left:
            count = "an entry is missing" if len(left) == 1 else f"{len(left)} entries are missing, the first one"
            doubt = ", or its broker was started again there, of which nothing tells" if left[0] in self._doubtful else ""
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
