"""Replacements of segments, stopped between any two steps: the states that compaction, or a split, leaves after a kill.

Kafka's order (LocalLog.replaceSegments, LogSegment.changeFileSuffixes, spec §6.7); a segment's files go in the order `.log`,
`.index`, `.timeindex`, `.txnindex`:

| phase | files | goes | what a start makes of it |
|---|---|---|---|
| writing | `….cleaned` | one after the other | the old segments |
| finished | `.cleaned` → `.swap` | the last segment first | the old ones, until the last `.cleaned` is gone |
| old ones away | plain → `.deleted` | the first segment first | the new ones |
| in place | `.swap` → plain | the first segment first | the new ones |
| removed | `.deleted` | one after the other | the new ones |
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.formats import names
from tidelog.formats.names import file_name
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.records.control import ControlType

SUFFIXES = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)
FIRST_MS = 1_700_000_000_000
KEY = TopicPartition("t", 0)


class Replacement(NamedTuple):
    """Segments by base offset, each with the offsets of its batches; the last old one is active, and stays."""

    name: str
    old: dict[int, list[int]]
    new: dict[int, list[int]]
    transactions: bool = False

    @property
    def rows_before(self) -> list[int]:
        return [offset for offsets in self.old.values() for offset in offsets]

    @property
    def rows_after(self) -> list[int]:
        kept = {base: offsets for base, offsets in self.old.items() if base not in self.replaced}
        return sorted(offset for offsets in (*self.new.values(), *kept.values()) for offset in offsets)

    @property
    def replaced(self) -> list[int]:
        end = max(offset for offsets in self.new.values() for offset in offsets)
        return [base for base in self.old if min(self.new) <= base <= end]


def _ten(base: int) -> list[int]:
    return list(range(base, base + 10))


REPLACEMENTS = (
    Replacement("one by one", {0: _ten(0), 10: _ten(10), 20: _ten(20)}, {10: [10, 12, 19]}),
    Replacement("two by one", {0: _ten(0), 10: _ten(10), 20: _ten(20)}, {0: [0, 5, 10, 15, 19]}),
    Replacement("three by one", {base: _ten(base) for base in (0, 10, 20, 30)}, {0: [3, 29]}),
    Replacement("split", {0: _ten(0), 10: _ten(10), 20: _ten(20)}, {0: [0, 1, 2, 3], 4: [4, 5, 6], 7: [7, 8, 9]}),
    Replacement("with transactions", {0: _ten(0), 10: _ten(10), 20: _ten(20)}, {0: [0, 1, 4, 9, 10, 11, 19]}, transactions=True),
)


class State(NamedTuple):
    """A folder's moment. `is_done` says whether the new segments count."""

    step: int
    what: str
    is_done: bool


def lay(folder: Path, segments: dict[int, list[int]], *, transactions: bool = False) -> Path:
    """Lay segments of batches with one record, or with `transactions` one that is aborted in the second half of each ten."""
    builder = LogBuilder(folder / names.log_dir_name(*KEY), start_offset=min(segments))
    for number, (base, offsets) in enumerate(segments.items()):
        if number:
            builder.roll(base)
        for offset in offsets:
            at = FIRST_MS + 1000 * offset
            if transactions and offset % 10 == 9:
                builder.append(build.marker(offset, at, ControlType.ABORT, 7))
            elif transactions and offset % 10 in (1, 4):
                producer = Producer(7, 0, offset)
                builder.append(build.batch(offset, [at], producer=producer, transactional=True, epoch=0))
            else:
                builder.append(build.batch(offset, [at], epoch=0))
    builder.close()
    return builder.directory


def steps(one: Replacement, there: dict[int, set[str]]) -> Iterator[tuple[str, str | None, str]]:
    """Yield each step as (name, its name before or None where it is written, what it is part of). `there` are the new files."""
    fresh = [(base, suffix) for base in one.new for suffix in SUFFIXES if suffix in there[base]]
    for base, suffix in fresh:
        yield f"{file_name(base, suffix)}.cleaned", None, "writing"
    for base in reversed(one.new):
        for suffix in [found for new, found in fresh if new == base]:
            yield f"{file_name(base, suffix)}.swap", f"{file_name(base, suffix)}.cleaned", "finished"
    for base in one.replaced:
        for suffix in SUFFIXES:
            yield f"{file_name(base, suffix)}.deleted", file_name(base, suffix), "old ones away"
    for base, suffix in fresh:
        yield file_name(base, suffix), f"{file_name(base, suffix)}.swap", "in place"
    for base in one.replaced:
        for suffix in SUFFIXES:
            yield "", f"{file_name(base, suffix)}.deleted", "removed"


def states(one: Replacement, folder: Path) -> Iterator[State]:
    """Make the replacement in `folder`, and yield at each moment, before the first step and after each."""
    directory = lay(folder, one.old, transactions=one.transactions)
    new = lay(folder / "new", one.new, transactions=one.transactions)
    there = {base: {suffix for suffix in SUFFIXES if (new / file_name(base, suffix)).exists()} for base in one.new}
    yield State(0, "before", is_done=False)
    is_done = False
    for number, (name, before, phase) in enumerate(steps(one, there), 1):
        if before is None:
            shutil.copy(new / name.removesuffix(".cleaned"), directory / name)
        elif not (directory / before).exists():
            continue
        elif name:
            (directory / before).rename(directory / name)
        else:
            (directory / before).unlink()
        is_done = is_done or (phase != "writing" and not list(directory.glob("*.cleaned")))
        yield State(number, f"{one.name}, {phase}: {before} → {name}", is_done)
    shutil.rmtree(folder / "new")
