"""Time index entries as KIP-33's text describes them, and Kafka never wrote them (spec §16): read without complaint where true.

| the text's entry | when | read as |
|---|---|---|
| (largest timestamp so far, next offset) | each interval | true, if a batch before that offset reached it first |
| (largest timestamp, base offset of the next segment) | at the roll | true, if that is the segment's largest |
| (modification time, base offset of the next segment) | at start-up, without an index | nothing, if no record has a time |
| (modification time, offset of the first message) | the same, in the migration plan | nothing, if no record has a time |

What is not true costs a notice and a walk through the log, and never an answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.formats.time_index import TimeIndex, TimestampOffset
from tidelog.model import MAX_TIMESTAMP
from tidelog.reader.log import Log
from tidelog.reader.segment_time import largest_timestamp
from tidelog.reader.time_search import find_offset
from tidelog.reader.trace import Trace
from tidelog.records.compression import Codec
from tidelog.times import show_timestamp

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
    if form in (last_entry_of_the_roll, next_offsets_throughout):
        assert not notices
    else:
        assert 1 <= len(notices) == len(set(notices)) <= 2, "a notice a file, and no more"
        assert all(".timeindex" in notice for notice in notices)


@pytest.mark.parametrize("form", [mtime_and_next_base, mtime_and_first_message])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_made_up_time_is_no_answer(form: Form, magic: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        assert largest_timestamp(log.segments[0]) == (-1, 0, "none")
    assert not caplog.records


def write_entries(builder: LogBuilder, base: int, entries: Iterable[tuple[int, int]]) -> None:
    data = b"".join(time.to_bytes(8, "big") + (offset - base).to_bytes(4, "big") for time, offset in entries)
    builder.file(base, ".timeindex").write_bytes(data)


class Text:
    """A log with time indexes as the text has them: segments of random batches, an entry after every so many."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.builder = LogBuilder(directory, interval_bytes=chance.choice([0, 200]))
        self.records: list[tuple[int, int]] = []
        self.bases: list[int] = []
        magic, offset = chance.choice([1, 2]), 0
        for _ in range(chance.randrange(1, 5)):
            self.bases.append(offset)
            entries: list[tuple[int, int]] = []
            largest, interval = -1, chance.randrange(1, 6)
            for number in range(chance.randrange(1, 15)):
                times = [chance.randrange(60) for _ in range(chance.randrange(1, 4))]
                codec = chance.choice([Codec.NONE, Codec.GZIP])
                self.builder.append(build.batch(offset, times, magic=magic, codec=codec))
                self.records += [(offset + i, time) for i, time in enumerate(times)]
                offset, largest = offset + len(times), max(largest, *times)
                if number % interval == interval - 1 and (not entries or largest > entries[-1][0]):
                    entries.append((largest, offset))
            offset += chance.choice([0, 0, 3])
            self.builder.roll(offset)
            if not entries or largest > entries[-1][0]:
                entries.append((largest, offset))
            write_entries(self.builder, self.bases[-1], entries)
        self.builder.close()


@given(seed=st.integers(0, 2**32))
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_index_by_the_text_is_read_without_complaint(
    seed: int, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-33, "next offset" and "base offset of the next segment": every answer is that of a plain scan, by the index."""
    text = Text(tmp_path_factory.mktemp("text") / "t-0", random.Random(seed))
    caplog.clear()
    with Log.open(text.builder.directory) as log:
        for target in range(-1, 62):
            plain = next(((offset, time) for offset, time in text.records if time >= max(target, 0)), None)
            found = find_offset(log, max(target, 0), trace=Trace())
            assert (None if found is None else found[:2]) == plain
        largest = find_offset(log, MAX_TIMESTAMP)
        time = max(time for _, time in text.records)
        assert largest is not None and largest[:2] == next(record for record in text.records if record[1] == time)
        for segment in log.segments[:-1]:
            assert segment.time_index is not None, "still trusted"
            assert largest_timestamp(segment).source == "index"
    assert not caplog.records


@pytest.mark.parametrize("wrong", [-1, 1, 1000])
def test_a_last_entry_of_the_roll_that_is_not_true(wrong: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    times = random_times(seed=7)
    builder = write(tmp_path / "t-0", times, 2)
    largest = max(times[:SEGMENT])
    write_entries(builder, 0, [(largest + wrong, SEGMENT)])
    with Log.open(builder.directory) as log:
        for target in (0, 1400, largest - 1, largest, largest + 1):
            found = find_offset(log, target)
            assert (None if found is None else found[:2]) == next(
                ((offset, time) for offset, time in enumerate(times) if time >= target), None
            )
    (notice,) = [record.getMessage() for record in caplog.records]
    assert f"entry 0 ({show_timestamp(largest + wrong)} at offset {SEGMENT}) does not agree with the log" in notice


@pytest.mark.parametrize("offset", [3, 5, 9, 10])
def test_file_times_are_told_by_their_offsets(offset: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A segment with a gap at its start, without timestamps: only the first message's offset and the next base are the text's."""
    builder = LogBuilder(tmp_path / "t-0")
    builder.append(*(build.batch(i, [-1]) for i in range(3, 9))).roll(10).append(build.batch(10, [50])).close()
    write_entries(builder, 0, [(NOW_MS, offset)])
    with Log.open(builder.directory) as log:
        assert find_offset(log, 20) == (10, 50, -1, False)
    assert bool(caplog.records) == (offset == 5)
