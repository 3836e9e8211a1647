"""Time maps: what they say of a log, that they are only believed where they agree with it, and how they come and go."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reader.build import LogBuilder, batch, marker
from tests.reader.golden import GOLDEN
from tests.records.kernels import KERNELS
from tidelog.errors import (
    CorruptDataError,
    CorruptIndexError,
    NotFoundError,
    SegmentChangedError,
    StorageError,
)
from tidelog.formats import time_map_builder
from tidelog.formats.file_stamp import UNKNOWN, FileStamp
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.time_map import BLOCK_BYTES, MAX_HOLES, TimeMap
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.reader import time_map_file
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import (
    FoundMap,
    TimeMaps,
    check_blocks,
    note_unused,
    read_time_map,
    rebuild_time_map,
    remove_stale_time_maps,
    remove_time_map,
    time_map_path,
    write_time_map,
)
from tidelog.records import records, scanner
from tidelog.records.batch import BatchHeader, compute_crc, iter_headers
from tidelog.records.builder import Producer, build_empty_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.kernel import MAX_INT64, MIN_INT64
from tidelog.records.records import iter_records

T = 1_600_000_000_000
NONE = -1


def log_of(directory: Path, *batches: bytes, base_offset: int = 0) -> Path:
    """Write a segment; return its `.log`."""
    folder = directory / "orders-0"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def in_order(count: int, *, first: int = 0) -> list[bytes]:
    """Batches of 3 records, 10 ms apart, each batch 1 s after the one before."""
    return [batch(3 * n, [T + 1000 * n + 10 * i for i in range(3)]) for n in range(first, first + count)]


def rows(time_map: TimeMap) -> list[tuple[int, ...]]:
    """Blocks as (position, first offset, smallest, largest, last batch, digest, records, without timestamp)."""
    return list(zip(*time_map.columns()[:8], strict=True))


def holes(time_map: TimeMap, block: int) -> list[tuple[int, int]]:
    """The times before and after each hole of a block."""
    where = slice(time_map.hole_ends[block - 1] if block else 0, time_map.hole_ends[block])
    return list(zip(time_map.before_holes[where], time_map.behind_holes[where], strict=True))


def check_holes(time_map: TimeMap, data: bytes) -> None:
    """Between records of the block, ascending, and empty."""
    assert time_map.hole_ends[-1] == len(time_map.before_holes) == len(time_map.behind_holes)
    for block in range(time_map.blocks):
        part = data[time_map.positions[block] : time_map.end_position(block)]
        times = set()
        for header in iter_headers(part):
            if not header.is_control:
                times |= {record.timestamp for record in iter_records(header, part[header.position : header.end_position])}
        times.discard(NONE)
        found = holes(time_map, block)
        ends = [end for hole in found for end in hole]
        assert len(found) <= MAX_HOLES
        assert ends == sorted(ends)
        assert times.issuperset(ends)
        assert not any(before < time < behind for before, behind in found for time in times)
        assert all(before < behind for before, behind in found)


def by_hand(data: bytes, base_offset: int, block_bytes: int) -> list[tuple[int, ...]]:
    """The same from an object per record."""
    blocks: list[tuple[int, ...]] = []
    members: list[BatchHeader] = []

    def identity(header: BatchHeader) -> bytes:
        return header.base_offset.to_bytes(8, "big") + (header.size - 12).to_bytes(4, "big") + header.crc.to_bytes(4, "big")

    def close() -> None:
        times: list[int] = []
        first_offset = None
        for header in members:
            found = list(iter_records(header, data[header.position : header.end_position]))
            if first_offset is None:
                first_offset = header.base_offset if header.magic == 2 else found[0].offset
            times += [] if header.is_control else [record.timestamp for record in found]
        known = [time for time in times if time != NONE]
        low, high = (min(known), max(known)) if known else (MAX_INT64, MIN_INT64)
        start = members[0].position
        assert first_offset is not None
        last_batch, digest = members[-1].position - start, crc32c(b"".join(map(identity, members)))
        blocks.append((start, first_offset, low, high, last_batch, digest, len(times), len(times) - len(known)))

    for header in iter_headers(data):
        if members and members[-1].end_position - members[0].position >= block_bytes:
            close()
            members = []
        members.append(header)
    if members:
        close()
    return blocks


@pytest.fixture(params=list(KERNELS))
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The compiled kernel and the interpreted one."""
    return put(KERNELS[request.param], monkeypatch)


def put(chosen: ModuleType, patch: pytest.MonkeyPatch) -> ModuleType:
    for module in (time_map_builder, scanner, records):
        patch.setattr(module, "kernel", chosen)
    return chosen


# --- what a map says ---


@pytest.mark.usefixtures("kernel")
class TestBuilding:
    def test_blocks_are_whole_batches_of_at_least_their_size(self, tmp_path: Path) -> None:
        value = b"x" * 3000
        batches = [batch(n, [T + n], value=value) for n in range(100)]
        path = log_of(tmp_path, *batches)
        found = rebuild_time_map(path)
        assert found is not None
        assert found.block_bytes == BLOCK_BYTES == 65536
        boundaries = {header.position for header in iter_headers(path.read_bytes())}
        ends = [found.end_position(block) for block in range(found.blocks)]
        sizes = [end - start for start, end in zip(found.positions, ends, strict=True)]
        assert set(found.positions) < boundaries
        assert all(65536 <= size < 65536 + len(batches[0]) for size in sizes[:-1])
        assert sum(sizes) == found.covered_bytes == path.stat().st_size
        assert sum(found.records) == 100
        assert rows(found) == by_hand(path.read_bytes(), 0, 65536)

    def test_every_kind_of_batch(self, tmp_path: Path) -> None:
        """Each in a block to itself: bounds are those of the records that a consumer sees."""
        producer = Producer(7, 0, 0)
        kinds: list[tuple[bytes, tuple[int, int, int, int]]] = [
            (batch(0, [T + 5, T, T + 9]), (T, T + 9, 3, 0)),
            (batch(3, [T + 5, T, T + 9], codec=Codec.ZSTD), (T, T + 9, 3, 0)),
            (batch(6, [T + 5, -1, T + 9]), (T + 5, T + 9, 3, 1)),
            (batch(9, [-1, -1], codec=Codec.GZIP), (MAX_INT64, MIN_INT64, 2, 2)),
            (batch(11, [T, T + 1], append_time=T + 50), (T + 50, T + 50, 2, 0)),
            (batch(13, [T, T + 1], append_time=T + 50, codec=Codec.LZ4), (T + 50, T + 50, 2, 0)),
            (batch(15, [T, T + 1], append_time=-1), (MAX_INT64, MIN_INT64, 2, 2)),
            (batch(17, [T, 0], producer=producer, transactional=True), (0, T, 2, 0)),
            (marker(19, T + 99, ControlType.COMMIT, 7), (MAX_INT64, MIN_INT64, 0, 0)),
            (bytes(build_empty_batch_v2(20, 24)), (MAX_INT64, MIN_INT64, 0, 0)),
            (batch(25, [T + 3], magic=1), (T + 3, T + 3, 1, 0)),
            (batch(26, [T + 3, T + 1, T + 2], magic=1, codec=Codec.GZIP), (T + 1, T + 3, 3, 0)),
            (batch(29, [T + 3, T + 1], magic=1, codec=Codec.LZ4, append_time=T + 60), (T + 60, T + 60, 2, 0)),
            (batch(31, [T], magic=0), (MAX_INT64, MIN_INT64, 1, 1)),
            (batch(32, [T, T], magic=0, codec=Codec.SNAPPY), (MAX_INT64, MIN_INT64, 2, 2)),
            (batch(34, [T, T + 7], step=3), (T, T + 7, 2, 0)),
        ]
        path = log_of(tmp_path, *(data for data, _ in kinds))
        found = rebuild_time_map(path, block_bytes=1)
        assert found is not None
        said = zip(found.min_timestamps, found.max_timestamps, found.records, found.without_timestamp, strict=True)
        assert list(said) == [wanted for _, wanted in kinds]
        assert list(found.first_offsets) == [0, 3, 6, 9, 11, 13, 15, 17, 19, 20, 25, 26, 29, 31, 32, 34]
        assert found.next_offset == 38

    def test_a_header_that_lies_about_its_largest_time_is_not_believed(self, tmp_path: Path) -> None:
        data = bytearray(batch(0, [T + 5, T, T + 9]))
        data[35:43] = (T + 5000).to_bytes(8, "big")
        data[17:21] = compute_crc(2, data).to_bytes(4, "big")
        found = rebuild_time_map(log_of(tmp_path, bytes(data)))
        assert found is not None and found.max_timestamps[0] == T + 9

    def test_batches_larger_than_a_chunk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time_map_builder, "CHUNK_BYTES", 700)
        monkeypatch.setattr(time_map_builder, "LARGE_BATCH_BYTES", 3000)
        sizes = [10, 600, 5000, 100, 4, 700, 650, 2000, 20]
        path = log_of(tmp_path, *(batch(n, [T + n], value=b"x" * size) for n, size in enumerate(sizes)))
        found = rebuild_time_map(path, block_bytes=1000)
        assert found is not None and rows(found) == by_hand(path.read_bytes(), 0, 1000)

    def test_room_for_timestamps_is_made_as_it_is_needed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time_map_builder, "_FIRST_ROOM", 2)
        path = log_of(tmp_path, *in_order(40))
        found = rebuild_time_map(path, block_bytes=150)
        assert found is not None and found.blocks == 20
        assert rows(found) == by_hand(path.read_bytes(), 0, 150)

    @pytest.mark.parametrize("where", ["a checksum", "a length", "the tail", "an offset", "a record"])
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_damage_is_an_error_and_leaves_no_map(self, where: str, codec: Codec, tmp_path: Path) -> None:
        batches = [bytearray(batch(2 * n, [T + n, T], codec=codec)) for n in range(20)]
        bad = batches[7]
        if where == "a checksum":
            bad[-3] ^= 1
        elif where == "a length":
            bad[8:12] = (2**31 - 1).to_bytes(4, "big")
        elif where == "an offset":
            bad[0:8] = (3).to_bytes(8, "big")
        elif where == "a record":  # with a right checksum: a wrong program wrote it
            bad[61:63] = b"\xff\xff"
            bad[17:21] = compute_crc(2, bad).to_bytes(4, "big")
        path = log_of(tmp_path, *map(bytes, batches))
        end = path.stat().st_size - (5 if where == "the tail" else 0)
        os.truncate(path, end)
        with pytest.raises(CorruptDataError):
            rebuild_time_map(path, end_position=end)
        assert write_time_map(path, end_position=end) is None
        assert not time_map_path(path).exists()


times = st.one_of(st.integers(T, T + 50), st.sampled_from([-1, 0, 3, 2**61]))


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches of every kind, offsets with holes."""
    offset = draw(st.integers(0, 3))
    found = []
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["v2"] * 5 + ["v1", "v0", "marker", "empty"]))
        stamps = draw(st.lists(times, min_size=1, max_size=5))
        if kind == "marker":
            found.append(marker(offset, stamps[0], ControlType.ABORT, 5))
            stamps = stamps[:1]
        elif kind == "empty":
            found.append(bytes(build_empty_batch_v2(offset, offset + len(stamps) - 1)))
        else:
            magic = int(kind[1])
            codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4] + [Codec.ZSTD] * (magic == 2)))
            append_time = draw(st.one_of(st.none(), st.integers(T, T + 60))) if magic else None
            found.append(batch(offset, stamps, magic=magic, codec=codec, append_time=append_time))
        offset += len(stamps) + draw(st.sampled_from([0, 0, 0, 4]))
    return found


@examples(120)
@given(batches=logs(), block_bytes=st.sampled_from([1, 80, 300, 65536]), cuts=st.lists(st.integers(0, 14), max_size=3))
def test_a_map_says_what_the_records_say_however_it_grew(batches: list[bytes], block_bytes: int, cuts: list[int]) -> None:
    """Built at once by both kernels, and in pieces: the same bytes, and what looking at every record gives."""
    data = b"".join(batches)
    ends = [sum(map(len, batches[:count])) for count in sorted(min(cut, len(batches)) for cut in cuts)]
    contents = []
    with TemporaryDirectory() as folder:
        path = log_of(Path(folder), data)
        for chosen in KERNELS.values():
            with pytest.MonkeyPatch.context() as patch:
                put(chosen, patch)
                whole = TimeMapBuilder(0, block_bytes=block_bytes)
                grown: TimeMap | None = None
                with ReadOnlyFile(path) as file:
                    add_batches(whole, file, len(data))
                    for end in [*ends, len(data)]:
                        builder = TimeMapBuilder(0, block_bytes=block_bytes, grown_from=grown)
                        add_batches(builder, file, end)
                        grown = builder.build()
                at_once = whole.build()
                assert (at_once is None) == (grown is None) == (not batches)
                if at_once is not None and grown is not None:
                    contents += [at_once.to_bytes(), grown.to_bytes()]
                    assert TimeMap.from_bytes(contents[0]) == at_once
                    assert rows(at_once) == by_hand(data, 0, block_bytes)
                    check_holes(at_once, data)
    assert len(set(contents)) <= 1


@pytest.mark.parametrize(
    "log", sorted(GOLDEN.glob("kafka-*/log/*/*.log")), ids=lambda path: f"{path.parts[-4]}/{path.parent.name}/{path.stem}"
)
def test_logs_that_kafka_wrote(log: Path, tmp_path: Path) -> None:
    found = rebuild_time_map(log, tmp_path, block_bytes=2000)
    data = log.read_bytes()
    assert (found is None) == (not data)
    if found is not None:
        assert rows(found) == by_hand(data, int(log.stem), 2000)
        check_holes(found, data)
        assert read_time_map(tmp_path / log.parent.name / f"{log.stem}.timemap") == found


def bounds_of(kernel: ModuleType, times: list[int], most: int = MAX_HOLES) -> tuple[int, int, list[tuple[int, int]]]:
    smallest, largest, found = kernel.time_bounds(array("q", [*times, 77]), len(times), most)
    return smallest, largest, list(zip(found[::2], found[1::2], strict=True))


class TestHoles:
    """Late records among the many that are in time: what lies between is told apart, to the millisecond."""

    def test_nothing_in_particular(self, kernel: ModuleType) -> None:
        assert bounds_of(kernel, []) == (MAX_INT64, MIN_INT64, [])
        assert bounds_of(kernel, [5]) == bounds_of(kernel, [5, 5, 5]) == (5, 5, [])
        assert bounds_of(kernel, list(range(1000, 0, -1))) == (1, 1000, [])
        assert bounds_of(kernel, [T + 37 * n + n % 29 for n in range(700)])[2] == []

    def test_late_and_early_ones(self, kernel: ModuleType) -> None:
        bulk = [T + n for n in range(600)]
        late = [T - 86_400_000, T - 7_200_000, T - 7_199_999, T - 3_600_000, T + 900_000]
        assert bounds_of(kernel, late[:2] + bulk + late[2:]) == (
            T - 86_400_000,
            T + 900_000,
            [
                (T - 86_400_000, T - 7_200_000),
                (T - 7_199_999, T - 3_600_000),
                (T - 3_600_000, T),
                (T + 599, T + 900_000),
            ],
        )

    def test_two_halves_a_day_apart(self, kernel: ModuleType) -> None:
        """Two producers, one of them catching up."""
        times = [T + n - 86_400_000 * (n % 2) for n in range(600)]
        assert bounds_of(kernel, times)[2] == [(T - 86_400_000 + 599, T)]

    def test_the_widest_are_kept(self, kernel: ModuleType) -> None:
        times = [T] * 100 + [T - 1000 * n * n for n in range(1, 31)]
        found = bounds_of(kernel, times, 10)[2]
        assert 5 <= len(found) <= 10
        assert found[0] == (T - 900_000, T - 841_000)
        every = bounds_of(kernel, times)[2]
        assert len(every) == 30
        assert found == every[: len(found)]

    def test_times_at_the_ends_of_what_there_is(self, kernel: ModuleType) -> None:
        assert bounds_of(kernel, [MIN_INT64, MAX_INT64])[:2] == (MIN_INT64, MAX_INT64)
        assert bounds_of(kernel, [0, MAX_INT64, 0]) == (0, MAX_INT64, [(0, MAX_INT64)])
        assert bounds_of(kernel, [-5, MAX_INT64 - 5, -5])[2] == [(-5, MAX_INT64 - 5)]

    @pytest.mark.parametrize("times", [[0, MAX_INT64], [1, MAX_INT64], [-5, MAX_INT64 - 5], [0, 2**62, MAX_INT64]])
    def test_none_is_wanted_however_wide_they_are(self, kernel: ModuleType, times: list[int]) -> None:
        assert bounds_of(kernel, times, 0) == (times[0], times[-1], [])

    def test_in_a_map(self, tmp_path: Path, kernel: ModuleType) -> None:
        put(kernel, pytest.MonkeyPatch())
        late = [batch(3 * n, [T + 1000 * n, T + 1000 * n + 5, T + 1000 * n - 3_600_000]) for n in range(20)]
        data = b"".join(late)
        found = rebuild_time_map(log_of(tmp_path, data), block_bytes=300)
        assert found is not None
        check_holes(found, data)
        every = range(found.blocks)
        assert found.blocks_in_time(every, T + 4000, T + 4001) == found.blocks_in_time(every, T - 3_596_000, T - 3_595_999)
        assert found.blocks_in_time(every, T + 4000, T + 4001) == [1]
        assert found.blocks_in_time(every, T - 1_800_000, T) == []
        assert found.blocks_in_time(every, T - 1_800_000, None) == found.blocks_in_time(every, None, T) == list(every)
        assert found.blocks_in_time(every, T - 3_580_999, T) == []
        assert found.blocks_in_time(every, T - 3_581_000, T) == found.blocks_in_time(every, T - 3_580_999, T + 19_006)[-1:]


@examples(200)
@given(
    times=st.lists(
        st.one_of(st.integers(T, T + 300), st.integers(-10, 2 * T), st.sampled_from([MIN_INT64, MAX_INT64])), max_size=60
    ),
    most=st.integers(0, 9),
)
def test_holes_are_empty_whatever_the_times(times: list[int], most: int) -> None:
    answers = [bounds_of(chosen, times, most) for chosen in KERNELS.values()]
    assert answers[0] == answers[-1]
    smallest, largest, found = answers[0]
    assert (smallest, largest) == ((min(times), max(times)) if times else (MAX_INT64, MIN_INT64))
    assert len(found) <= most
    for before, behind in found:
        assert before in times and behind in times and before < behind
        assert not any(before < time < behind for time in times)


def test_blocks_by_offset_and_time(tmp_path: Path) -> None:
    found = rebuild_time_map(log_of(tmp_path, *in_order(4), base_offset=0), block_bytes=1)
    assert found is not None
    assert list(found.first_offsets) == [0, 3, 6, 9]
    offsets = [(0, 12), (0, 3), (0, 4), (2, 3), (3, 3), (4, 9), (11, 99), (12, 99), (50, 60), (0, 0)]
    assert [list(found.blocks_between(*ends)) for ends in offsets] == [
        [0, 1, 2, 3], [0], [0, 1], [0], [], [1, 2], [3], [], [], [],
    ]  # fmt: skip
    every = range(4)
    ranges = [
        (None, None),
        (T, None),
        (T + 1021, None),
        (None, T + 1000),
        (None, T + 1001),
        (T + 1020, T + 2000),
        (T + 21, T + 1000),
    ]
    assert [found.blocks_in_time(every, *ends) for ends in ranges] == [
        [0, 1, 2, 3], [0, 1, 2, 3], [2, 3], [0], [0, 1], [1], [],
    ]  # fmt: skip
    assert found.blocks_in_time(range(2, 3), None, None) == [2]


# --- the file ---


STAMP = FileStamp(2**64 - 1, 2**51, 2**52, 2**53)


def a_map() -> TimeMap:
    numbers = [array("q", range(3)) for _ in range(4)]
    small = [array(code, range(3)) for code in "iIiii"]
    return TimeMap(
        65536, 10, 2**40, 2**50, 2**49, 2**32 - 1, *numbers, *small, array("q", [7, 9]), array("q", [8, 11]), stamp=STAMP
    )


def test_the_format_byte_by_byte() -> None:
    """The table in the module's text, in numbers."""
    path = Path(__file__)
    data = a_map().to_bytes()
    assert len(data) == 92 + 3 * 52 + 2 * 16 + 4
    assert data[:8] == b"tidemap\0"
    assert [int.from_bytes(data[at : at + 4], "big") for at in (8, 12, 48, 52, 56)] == [2, 65536, 2**32 - 1, 3, 2]
    assert [int.from_bytes(data[at : at + 8], "big") for at in (16, 24, 32, 40)] == [10, 2**40, 2**50, 2**49]
    assert [int.from_bytes(data[at : at + 8], "big") for at in (60, 68, 76, 84)] == list(STAMP)
    assert [int.from_bytes(data[at : at + 8], "big") for at in range(92, 188, 8)] == [0, 1, 2] * 4
    assert [int.from_bytes(data[at : at + 4], "big") for at in range(188, 248, 4)] == [0, 1, 2] * 5
    assert [int.from_bytes(data[at : at + 8], "big") for at in range(248, 280, 8)] == [7, 9, 8, 11]
    assert TimeMap.from_bytes(data, path).stamp == STAMP
    assert TimeMap.from_bytes(data, path) == a_map()


def test_every_flipped_byte_and_every_cut_is_seen() -> None:
    data = a_map().to_bytes()
    for i in range(len(data)):
        flipped = bytearray(data)
        flipped[i] ^= 0x10
        for broken in (bytes(flipped), data[:i], data + bytes(i + 1)):
            with pytest.raises(CorruptIndexError):
                TimeMap.from_bytes(broken)


def test_every_flipped_bit_is_seen() -> None:
    data = a_map().to_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptIndexError):
            TimeMap.from_bytes(bytes(flipped))


@pytest.mark.parametrize(
    ("version", "why"), [(3, "the time map has an unknown version: found 3, expected 2"), (1, "older format.*rebuild")]
)
def test_a_map_of_another_version_is_none_of_ours(tmp_path: Path, version: int, why: str) -> None:
    data = bytearray(a_map().to_bytes())
    data[11] = version
    path = tmp_path / "0.timemap"
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match=why):
        read_time_map(path)


def test_a_huge_file_of_that_name_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "0.timemap"
    path.write_bytes(a_map().to_bytes())
    os.truncate(path, 2**40)
    with pytest.raises(CorruptIndexError, match="invalid length"):
        read_time_map(path)


# --- which map is believed ---


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Notices about time maps, as they come."""
    texts: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if ".timemap" in record.getMessage():
                texts.append(record.getMessage())

    handler = Collect()
    logging.getLogger("tidelog.log").addHandler(handler)
    yield texts
    logging.getLogger("tidelog.log").removeHandler(handler)


def find(path: Path, directory: Path | None = None, **segment: Any) -> TimeMap | None:
    """Return the map that a scan of the whole segment would use."""
    opened = Segment.open(path, **segment)
    try:
        for _ in range(2):  # It says once.
            usable = [found.time_map for found in TimeMaps(directory).find(opened) if is_true(opened, found)]
    finally:
        opened.close()
    return usable[0] if usable else None


def is_true(segment: Segment, found: FoundMap) -> bool:
    try:
        if not found.is_bound:
            check_blocks(found.time_map, range(found.time_map.blocks), segment.file, found.path, position=0)
    except CorruptIndexError as error:
        note_unused(segment, found.path, error)
        return False
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A segment of 40 batches with a map of 20 blocks."""
    path = log_of(tmp_path, *in_order(40))
    rebuild_time_map(path, block_bytes=200)
    return path


class TestAgreement:
    def test_a_map_of_its_segment(self, path: Path, told: list[str]) -> None:
        found = find(path)
        assert found is not None and found.covered_bytes == path.stat().st_size
        assert found == find(path, next_base_offset=120)
        assert not told

    def test_none_is_no_news(self, path: Path, told: list[str]) -> None:
        time_map_path(path).unlink()
        assert find(path) is None
        assert not told

    def test_a_grown_segment_uses_what_is_covered(self, path: Path, told: list[str]) -> None:
        covered = path.stat().st_size
        with path.open("ab") as file:
            file.write(b"".join(in_order(7, first=40)) + b"torn")
        found = find(path)
        assert found is not None and found.covered_bytes == covered
        assert not told

    @pytest.mark.parametrize("kept", [0, 1, 39])
    def test_a_truncated_segment(self, path: Path, kept: int, told: list[str]) -> None:
        os.truncate(path, sum(map(len, in_order(40)[:kept])))
        assert find(path) is None
        assert len(told) == 1 and "longer than its segment" in told[0]

    def test_a_truncated_and_refilled_segment(self, path: Path, told: list[str]) -> None:
        """A follower whose leader's log differs: the same positions, the same offsets, other records."""
        batches = in_order(45)
        batches[39] = batch(117, [T + 39_000 + 10 * i for i in range(3)], value=b"value 9"[:6] + b"999")
        assert len(batches[39]) == len(in_order(40)[39])
        path.write_bytes(b"".join(batches))
        assert find(path) is None
        assert len(told) == 1 and "a different batch at byte" in told[0]

    @pytest.mark.parametrize("removed", [0, 1, 20, 38, 39])
    def test_a_compacted_segment(self, path: Path, removed: int, told: list[str]) -> None:
        batches = in_order(43)
        del batches[removed]
        path.write_bytes(b"".join(batches))
        assert find(path) is None
        assert len(told) == 1

    def test_another_log(self, path: Path, told: list[str]) -> None:
        path.write_bytes(b"".join(batch(3 * n, [T + 5000 * n + 10 * i for i in range(3)]) for n in range(40)))
        assert find(path) is None
        assert len(told) == 1

    def test_another_batch_in_the_middle(self, path: Path, told: list[str]) -> None:
        """First and last batch agree, and so does the length."""
        found = read_time_map(time_map_path(path))
        assert found is not None
        data = bytearray(path.read_bytes())
        other = batch(54, [T + 18_000 + 10 * i for i in range(3)], value=b"VALUE 54")
        assert found.first_offsets[9] == 54 and len(other) == len(in_order(19)[18])
        data[found.positions[9] : found.positions[9] + len(other)] = other
        path.write_bytes(data)
        assert find(path) is None
        assert len(told) == 1

    def test_another_segments_map(self, path: Path, tmp_path: Path, told: list[str]) -> None:
        other = log_of(tmp_path, *in_order(40, first=100), base_offset=300)
        shutil.copy(time_map_path(path), time_map_path(other))
        assert find(other) is None
        assert len(told) == 1 and "a different segment (found base offset 0)" in told[0]

    @pytest.mark.parametrize("content", [b"", b"x", bytes(500), b"tidemap\0" + bytes(300)])
    def test_a_damaged_map(self, path: Path, content: bytes, told: list[str]) -> None:
        time_map_path(path).write_bytes(content)
        assert find(path) is None
        assert len(told) == 1

    def test_a_map_that_cannot_be_opened(self, path: Path, told: list[str]) -> None:
        time_map_path(path).unlink()
        os.mkfifo(time_map_path(path))
        assert find(path) is None
        assert len(told) == 1

    def test_nonsense_under_a_right_checksum(self, path: Path, told: list[str]) -> None:
        found = read_time_map(time_map_path(path))
        assert found is not None
        for column, block, value in (
            (found.positions, 0, -5),
            (found.positions, 0, 2**60),
            (found.positions, -1, -5),
            (found.positions, -1, 2**60),
            (found.last_batches, -1, -(2**31)),
            (found.last_batches, -1, 2**31 - 1),
        ):
            before, column[block] = column[block], value
            time_map_path(path).write_bytes(found.to_bytes())
            assert find(path) is None
            column[block] = before
        assert told

    def test_a_folder_of_ones_own_comes_first(self, path: Path, tmp_path: Path, told: list[str]) -> None:
        maps = tmp_path / "maps"
        maps.mkdir()
        beside = find(path, maps)
        assert beside is not None and beside.block_bytes == 200
        mine = rebuild_time_map(path, maps, block_bytes=300)
        assert time_map_path(path, maps) == maps / "orders-0" / f"{0:020d}.timemap"
        assert find(path, maps) == mine != find(path)
        assert not told
        time_map_path(path, maps).write_bytes(b"not one")
        assert find(path, maps) == beside
        assert len(told) == 1

    def test_a_folder_that_is_none(self, path: Path, tmp_path: Path) -> None:
        for name in (tmp_path / "nowhere", path):
            with pytest.raises(NotFoundError):
                TimeMaps(name)

    def test_the_map_of_a_segment_that_is_being_swapped_in(self, path: Path) -> None:
        swapped = path.rename(f"{path}.swap")
        assert find(swapped) is not None


# --- writing ---


class TestWriting:
    def test_a_map_that_is_right_is_not_touched(self, path: Path) -> None:
        def identity() -> tuple[int, int, int]:
            stat = time_map_path(path).stat()
            return stat.st_ino, stat.st_size, stat.st_mtime_ns  # not st_atime: reading changes it

        before = identity()
        assert rebuild_time_map(path, block_bytes=200) is not None
        assert identity() == before
        assert rebuild_time_map(path, block_bytes=200, from_start=True) is not None
        assert identity() != before

    def test_a_grown_segment_is_read_from_the_maps_last_block_on(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = read_time_map(time_map_path(path))
        assert before is not None
        with path.open("ab") as file:
            file.write(b"".join(in_order(9, first=40)))
        read: list[int] = []
        read_into = ReadOnlyFile.read_into
        monkeypatch.setattr(
            ReadOnlyFile,
            "read_into",
            lambda self, position, buffer: (read.append(position), read_into(self, position, buffer))[1],
        )
        grown = rebuild_time_map(path, block_bytes=200)
        assert min(read) == before.positions[-1]
        assert grown == rebuild_time_map(path, block_bytes=200, from_start=True) == find(path)

    def test_a_map_of_another_log_is_not_grown(self, path: Path) -> None:
        """All blocks are compared before they are taken over: the last batch, and the one after which the log went on, agree."""
        data = bytearray(path.read_bytes() + b"".join(in_order(9, first=40)))
        other = batch(54, [T + 18_000_000 + 10 * i for i in range(3)], value=b"value 54")
        size = len(in_order(19)[18])
        assert len(other) == size
        start = data.index(in_order(19)[18])
        data[start : start + size] = other
        path.write_bytes(data)
        grown = rebuild_time_map(path, block_bytes=200)
        assert grown == rebuild_time_map(path, block_bytes=200, from_start=True)

    def test_a_map_is_bound_to_the_file_that_is_there(self, path: Path, tmp_path: Path) -> None:
        def is_bound(log: Path) -> bool:
            with ReadOnlyFile(log) as file:
                found = read_time_map(time_map_path(log))
                assert found is not None
                return time_map_file.is_bound(found, file)

        assert is_bound(path)
        content = time_map_path(path).read_bytes()
        copied = shutil.copytree(path.parent, tmp_path / "copied" / "orders-0") / path.name
        assert not is_bound(copied)
        rebuild_time_map(copied, block_bytes=200)
        assert is_bound(copied)
        assert read_time_map(time_map_path(copied)) == TimeMap.from_bytes(content)
        for change in (
            lambda: os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns)),
            lambda: path.rename(f"{path}.away").rename(path),
            lambda: path.write_bytes(path.read_bytes()),
        ):
            change()
            assert not is_bound(path)
            assert write_time_map(path, block_bytes=200) is not None
            assert is_bound(path)

    def test_a_log_that_is_written_to_while_it_is_mapped_binds_no_map(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def add_and_touch(*arguments: Any) -> None:
            add_batches(*arguments)
            path.write_bytes(path.read_bytes())

        monkeypatch.setattr("tidelog.reader.time_map_file.add_batches", add_and_touch)
        found = rebuild_time_map(path, block_bytes=300)
        assert found is not None and found.stamp == UNKNOWN

    def test_what_looks_like_an_unfinished_append_is_left_out(self, tmp_path: Path) -> None:
        whole = b"".join(in_order(5))
        for tail in (b"", b"\0" * 5000, in_order(6)[5][:-1], in_order(6)[5][:9]):
            path = log_of(tmp_path, whole, tail)
            found = rebuild_time_map(path, from_start=True)
            assert found is not None and found.covered_bytes == len(whole)

    @pytest.mark.parametrize("content", [b"", b"\0" * 4096])
    def test_a_segment_without_batches_has_none(self, content: bytes, tmp_path: Path) -> None:
        path = log_of(tmp_path, content)
        assert write_time_map(path) is rebuild_time_map(path) is None
        assert not time_map_path(path).exists()

    def test_a_damaged_map_is_written_anew(self, path: Path) -> None:
        right = time_map_path(path).read_bytes()
        time_map_path(path).write_bytes(b"not one")
        write_time_map(path, block_bytes=200)
        assert time_map_path(path).read_bytes() == right

    def test_the_log_is_only_read(self, path: Path, tmp_path: Path) -> None:
        """A folder that must not be written to: its maps are elsewhere."""
        time_map_path(path).unlink()
        before = {file: file.stat() for file in (path, path.parent)}
        assert rebuild_time_map(path, tmp_path / "new" / "maps") is not None
        assert {file: (found.st_mtime_ns, found.st_size) for file, found in before.items()} == {
            file: (file.stat().st_mtime_ns, file.stat().st_size) for file in before
        }
        assert find(path, tmp_path / "new" / "maps") is not None

    def test_others_may_read_it(self, path: Path) -> None:
        assert stat.S_IMODE(time_map_path(path).stat().st_mode) == stat.S_IMODE(path.stat().st_mode)

    def test_a_file_system_that_refuses(self, path: Path, tmp_path: Path, told: list[str]) -> None:
        (tmp_path / "taken").write_text("no folder")
        with pytest.raises(StorageError):
            rebuild_time_map(path, tmp_path / "taken")
        assert write_time_map(path, tmp_path / "taken") is None
        assert len(told) == 1 and "no time map was written" in told[0]
        time_map_path(path).unlink()
        time_map_path(path).mkdir()
        assert write_time_map(path) is None
        assert [file.name for file in path.parent.iterdir() if file.name.endswith(".tmp")] == []

    def test_a_log_that_is_gone(self, path: Path) -> None:
        path.unlink()
        with pytest.raises(NotFoundError):
            rebuild_time_map(path)
        assert write_time_map(path) is None

    def test_a_log_that_is_replaced_meanwhile(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A compaction: the map would be about a segment that nobody reads any more."""
        before = time_map_path(path).read_bytes()

        def add_and_replace(*arguments: Any) -> None:
            add_batches(*arguments)
            path.rename(f"{path}.deleted")
            path.write_bytes(b"".join(in_order(3)))

        monkeypatch.setattr("tidelog.reader.time_map_file.add_batches", add_and_replace)
        with pytest.raises(SegmentChangedError):
            rebuild_time_map(path, block_bytes=300)
        assert time_map_path(path).read_bytes() == before

    def test_a_log_that_shrinks_meanwhile(self, path: Path) -> None:
        end = path.stat().st_size
        os.truncate(path, end - 100)
        with pytest.raises(SegmentChangedError):
            rebuild_time_map(path, end_position=end)


def names_of(folder: Path) -> Sequence[str]:
    return sorted(file.name for file in folder.iterdir())


def test_stale_maps_are_removed_and_nothing_else(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "orders-0", segment_bytes=300)
    builder.append(*in_order(12)).close()
    logs = sorted(builder.directory.glob("*.log"))
    for log in logs:
        write_time_map(log)
    for name in ("notes.timemap.txt", "x.timemap", "5.timemap.12.tmp.gz"):
        (builder.directory / name).touch()
    unfinished = builder.directory / f"{0:020d}.timemap.12345.tmp"
    unfinished.touch()
    (builder.directory / "7.timemap").mkdir()
    before = names_of(builder.directory)
    logs[0].unlink()
    left = [int(log.stem) for log in logs[1:]]
    stale = time_map_path(logs[0])
    assert set(remove_stale_time_maps(builder.directory, left)) == {stale, unfinished}
    assert set(before) - set(names_of(builder.directory)) == {logs[0].name, stale.name, unfinished.name}
    assert remove_stale_time_maps(builder.directory, left) == []
    remove_time_map(logs[1])
    remove_time_map(logs[1])
    assert not time_map_path(logs[1]).exists()


def test_readers_of_logs_pass_maps_by(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "orders-0", segment_bytes=300)
    builder.append(*in_order(12)).close()
    with builder.open() as log:
        before = [segment.base_offset for segment in log.segments], log.log_end_offset, log.snapshots
    for path in builder.directory.glob("*.log"):
        assert write_time_map(path) is not None
    (builder.directory / f"{999:020d}.timemap").write_bytes(b"stale")
    with builder.open() as log:
        assert ([segment.base_offset for segment in log.segments], log.log_end_offset, log.snapshots) == before
