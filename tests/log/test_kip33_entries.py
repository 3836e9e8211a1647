"""Time index entries as KIP-33's text describes them, and Kafka never wrote them (spec §16): read, and never believed.

| the text's entry | when |
|---|---|
| (largest timestamp, base offset of the next segment) | at the roll |
| (modification time, base offset of the next segment) | at start-up, for a segment without an index |
| (modification time, offset of the first message) | the same, in the migration plan |
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.log import build
from tests.log.build import LogBuilder
from tidelog.log.log import Log
from tidelog.log.time_index import TimeIndex, TimestampOffset
from tidelog.log.time_search import MAX_TIMESTAMP, find_offset

SEGMENT = 40
NOW_MS = 1_600_604_800_000

Form: TypeAlias = Callable[[list[TimestampOffset], int], list[TimestampOffset]]


def random_times(seed: int) -> list[int]:
    shuffled = random.Random(seed)
    return [1000 + shuffled.randrange(500) for _ in range(3 * SEGMENT)]


def write(directory: Path, times: list[int], magic: int) -> LogBuilder:
    """Three segments of single-record batches, every batch with its index entries."""
    builder = LogBuilder(directory)
    for offset, time in enumerate(times):
        if offset and offset % SEGMENT == 0:
            builder.roll()
        builder.append(build.batch(offset, [time], magic=magic))
    return builder.close()


def last_entry_of_the_roll(entries: list[TimestampOffset], base: int) -> list[TimestampOffset]:
    return [*entries[:-1], TimestampOffset(entries[-1].timestamp, base + SEGMENT)]


def next_offsets_throughout(entries: list[TimestampOffset], _base: int) -> list[TimestampOffset]:
    return [TimestampOffset(entry.timestamp, entry.offset + 1) for entry in entries]


def mtime_and_next_base(_entries: list[TimestampOffset], base: int) -> list[TimestampOffset]:
    return [TimestampOffset(NOW_MS, base + SEGMENT)]


def mtime_and_first_message(_entries: list[TimestampOffset], base: int) -> list[TimestampOffset]:
    return [TimestampOffset(NOW_MS, base)]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("form", [last_entry_of_the_roll, next_offsets_throughout, mtime_and_next_base, mtime_and_first_message])
def test_answers_are_those_of_a_plain_scan(form: Form, magic: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    times = random_times(seed=magic)
    builder = write(tmp_path / "t-0", times, magic)
    for base in (0, SEGMENT):
        path = builder.file(base, ".timeindex")
        index = TimeIndex.from_bytes(base, path.read_bytes())
        entries = form([index.entry(slot) for slot in range(index.entries)], base)
        path.write_bytes(b"".join(t.to_bytes(8, "big") + (offset - base).to_bytes(4, "big") for t, offset in entries))
    with Log.open(builder.directory) as log:
        for target in range(995, 1505):
            found = find_offset(log, target)
            plain = next(((offset, time) for offset, time in enumerate(times) if time >= target), None)
            assert (None if found is None else found[:2]) == plain, target
        largest = find_offset(log, MAX_TIMESTAMP)
        assert largest is not None and largest[:2] == (times.index(max(times)), max(times))
    notices = [record.getMessage() for record in caplog.records]
    assert 1 <= len(notices) == len(set(notices)) <= 2, "a notice a file, and no more"
    assert all(".timeindex" in notice for notice in notices)


@pytest.mark.parametrize("form", [mtime_and_next_base, mtime_and_first_message])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_made_up_time_is_no_answer(form: Form, magic: int, tmp_path: Path) -> None:
    """Where no record has a timestamp there is nothing to find, whatever time the index claims; and later matches are found."""
    builder = LogBuilder(tmp_path / "t-0")
    for offset in range(SEGMENT):
        builder.append(build.batch(offset, [-1], magic=magic))
    builder.roll().append(build.batch(SEGMENT, [5000])).close()
    (entry,) = form([], 0)
    builder.file(0, ".timeindex").write_bytes(entry.timestamp.to_bytes(8, "big") + entry.offset.to_bytes(4, "big"))
    with Log.open(builder.directory) as log:
        found = find_offset(log, 3000)
        assert found is not None and found[:2] == (SEGMENT, 5000)
        assert find_offset(log, 5001) is None
