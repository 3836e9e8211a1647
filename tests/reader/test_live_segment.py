"""The last segment of a running broker: its owner goes on appending, to log and indexes, after it was listed here."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.reader.segment import Segment
from tidelog.reader.segment_time import find_offset_by_timestamp, largest_timestamp

SEEN = 40
PREALLOCATED = 1 << 16


def batch(offset: int) -> bytes:
    return build.batch(offset, [10 * offset], value=b"hello")


SIZE = len(batch(0))


class Owner:
    """A broker's live segment, rewritten in place at each `write`: as it is after so many more batches."""

    def __init__(self, directory: Path, *, preallocate: bool = False, interval_bytes: int = 0) -> None:
        self.builder = LogBuilder(directory, interval_bytes=interval_bytes)
        self.preallocate = preallocate
        self.path = self.builder.file(0, ".log")

    def write(self, until: int, *, cut: int = 0) -> None:
        self.builder.append(*(batch(i) for i in range(self.builder.next_offset, until))).close_live()
        data = bytes(self.builder.log)
        if cut:
            self.path.write_bytes(data[:-cut])
        if self.preallocate:
            self.path.write_bytes(data.ljust(PREALLOCATED, b"\0"))


def check(segment: Segment) -> None:
    """Everything that is asked of a segment, in offsets and times, by what was there when its end was read."""
    assert (segment.next_offset, segment.end_position) == (SEEN, SEEN * SIZE)
    for offset in (*range(SEEN), SEEN, SEEN + 1, SEEN + 20, 10_000):
        header = segment.translate_offset(offset)
        assert (None if header is None else header.last_offset) == (offset if offset < SEEN else None)
        record = find_offset_by_timestamp(segment, 10 * offset, 0)
        assert (None if record is None else record.offset) == (offset if offset < SEEN else None)
        record = find_offset_by_timestamp(segment, 10 * offset + 1, 0)
        assert (None if record is None else record.offset) == (offset + 1 if offset + 1 < SEEN else None)
    assert largest_timestamp(segment)[:2] == (10 * (SEEN - 1), SEEN - 1)


@pytest.mark.parametrize("interval_bytes", [0, 10 * SIZE])
@pytest.mark.parametrize("more", [1, 2, 100])
@pytest.mark.parametrize("known", ["the listing", "the end", "the offset index", "the time index"])
def test_entries_newer_than_what_is_seen(
    tmp_path: Path, known: str, more: int, interval_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Owner(tmp_path / "t-0", interval_bytes=interval_bytes)
    owner.write(SEEN)
    segment = Segment.open(owner.path)
    if known == "the end":
        assert segment.next_offset == SEEN
    elif known == "the offset index":
        assert segment.offset_index is not None
    elif known == "the time index":
        assert segment.time_index is not None
    owner.write(SEEN + more)
    check(segment)
    assert segment.offset_index is not None and segment.time_index is not None, "both are still trusted"
    assert not caplog.records


@pytest.mark.parametrize("more", [1, 100])
def test_entries_newer_than_what_is_seen_of_a_preallocated_file(
    tmp_path: Path, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The file's size says nothing there: the end is that of the moment when it was looked for."""
    owner = Owner(tmp_path / "t-0", preallocate=True)
    owner.write(SEEN)
    segment = Segment.open(owner.path)
    assert segment.next_offset == SEEN
    owner.write(SEEN + more)
    check(segment)
    assert not caplog.records


def test_an_append_was_going_on_at_the_listing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that points to a batch of which only the beginning was there."""
    owner = Owner(tmp_path / "t-0")
    owner.write(SEEN + 1, cut=20)
    segment = Segment.open(owner.path)
    owner.write(SEEN + 5)
    check(segment)
    assert not caplog.records


def test_only_the_index_is_longer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A log that has not grown since cannot have new entries: these report batches that are lost, and that is said."""
    owner = Owner(tmp_path / "t-0")
    owner.write(SEEN)
    data = owner.path.read_bytes()
    owner.write(SEEN + 5)
    owner.path.write_bytes(data)
    check(Segment.open(owner.path))
    said = sorted(record.getMessage().split(": ")[0].rpartition(".")[2] for record in caplog.records)
    assert said and set(said) == {"index", "timeindex"}


@pytest.mark.parametrize("seed", range(4))
def test_reads_between_appends(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Listed at one moment, each thing read at another: answers and silence are the same."""
    chance = random.Random(seed)
    owner = Owner(tmp_path / "t-0", interval_bytes=chance.choice([0, 3 * SIZE]))
    owner.write(SEEN)
    segment = Segment.open(owner.path)
    end = SEEN
    for _ in range(30):
        end += chance.randrange(4)
        owner.write(end)
        offset = chance.randrange(SEEN + 30)
        record = find_offset_by_timestamp(segment, 10 * offset, 0)
        assert (None if record is None else record.offset) == (offset if offset < SEEN else None)
    check(segment)
    assert not caplog.records
