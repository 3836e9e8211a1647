"""The offset map against a plain list of (source offset, target offset), and against crashes at any byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.copying.offset_map import MapRun, OffsetMap, OffsetMapWriter, PartitionMap
from tidelog.copying.offset_map_file import MapHead, add_run, chunk, map_path, read_state
from tidelog.errors import CorruptDataError, InvalidArgumentError, NotFoundError, StorageError
from tidelog.model import TopicPartition

SOURCE = TopicPartition("flights", 3)


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        yield


# A chunk: gaps before each copied source offset, and how many target offsets go by before it (an aborted try, a marker).
chunks = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=0, max_size=6), st.integers(0, 3), st.integers(0, 2)), max_size=8
)


def runs_of_records(source_offsets: list[int], target_partition: int, target_offset: int) -> list[MapRun]:
    """Return the runs of records that lie in the target without gaps: `source_offsets`, in order."""
    runs: list[MapRun] = []
    for number, offset in enumerate(source_offsets):
        add_run(runs, MapRun(offset, offset, target_partition, target_offset + number, 1))
    return runs


def write(folder: Path, given_chunks: list[tuple[list[int], int, int]], start: int = 0) -> tuple[dict[int, int], int]:
    """Write a map; return source offset → target offset, and the position."""
    copied: dict[int, int] = {}
    position, target = start, 0
    with OffsetMapWriter(folder, SOURCE, "copy", start_offset=start) as writer:
        writer.settle(None)
        for gaps, lost, behind in given_chunks:
            target += lost
            offsets = []
            for gap in gaps:
                position += gap
                offsets.append(position)
                position += 1
            writer.stage(runs_of_records(offsets, 3, target), position + behind)
            copied.update(zip(offsets, range(target, target + len(offsets)), strict=True))
            target += len(offsets)
            position += behind
            writer.confirm()
    return copied, position


def check(found: PartitionMap, copied: dict[int, int], start: int, position: int) -> None:
    assert found.next_source_offset == position
    for asked in range(max(0, start - 2), position + 3):
        behind = [target for source, target in copied.items() if source >= asked]
        before = [target for source, target in copied.items() if source < asked]
        at, is_exact = found.target_of(asked)
        assert all(target >= at for target in behind), "misses one"
        assert all(target < at for target in before), "all runs are linear: none is read twice"
        if start <= asked <= position and copied:
            assert is_exact
        else:
            assert not is_exact


@given(chunks, st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_every_offset_against_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory, given_chunks: list[tuple[list[int], int, int]], start: int
) -> None:
    folder = tmp_path_factory.mktemp("map")
    copied, position = write(folder, given_chunks, start)
    check(OffsetMap.open(folder).partition(SOURCE), copied, start, position)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 3), st.sampled_from("lgu")), max_size=6
    )
)
@settings(max_examples=50, deadline=None)
def test_what_is_not_exact_is_on_the_safe_side(given_runs: list[tuple[list[int], int, str]]) -> None:
    """Runs that tell each record (l), runs with gaps (g), runs of which nobody noted where they went (u)."""
    copied: dict[int, int] = {}
    runs: list[MapRun] = []
    source = target = 0
    for gaps, lost, kind in given_runs:
        target += lost
        offsets = []
        for gap in gaps:
            source += gap
            offsets.append(source)
            source += 1
        copied.update(zip(offsets, range(target, target + len(offsets)), strict=True))
        if kind == "l":
            noted = runs_of_records(offsets, 0, target)
        else:
            noted = [MapRun(offsets[0], offsets[-1], 0, target if kind == "g" else 0, len(offsets) if kind == "g" else -1)]
        for run in noted:
            add_run(runs, run)
        target += len(offsets)
    found = PartitionMap(MapHead(SOURCE, "copy", 0), runs, source)
    for asked in range(source + 2):
        at, is_exact = found.target_of(asked)
        behind = found.behind(asked)
        after = [to for offset, to in copied.items() if offset >= asked]
        before = [to for offset, to in copied.items() if offset < asked]
        assert all(to >= at for to in after)
        assert behind is None or all(to < behind for to in before)
        if is_exact:
            assert all(to < at for to in before)


def test_runs_that_touch_become_one(tmp_path: Path) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy", start_offset=10) as writer:
        assert writer.is_new
        assert writer.settle(None) == 10
        writer.stage([MapRun(10, 14, 3, 0, 5, 70), MapRun(15, 15, 3, 5, 1, 90)])
        writer.confirm()
        writer.stage([MapRun(16, 17, 3, 6, 2, 80), MapRun(18, 18, 3, 9, 1, 80)])
        writer.confirm()
        assert not writer.is_new or writer.next_source_offset == 19
    found = OffsetMap.open(tmp_path).partition(SOURCE)
    assert found.runs == [MapRun(10, 17, 3, 0, 8, 90), MapRun(18, 18, 3, 9, 1, 80)]
    assert (found.target_topic, found.start_offset, found.next_source_offset) == ("copy", 10, 19)


def test_a_run_with_gaps_is_read_from_its_beginning(tmp_path: Path) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        writer.settle(None)
        writer.stage([MapRun(0, 9, 3, 100, 4)])
        writer.confirm()
    maps = OffsetMap.open(tmp_path)
    assert maps.target_of("flights", 3, 0) == (100, True)
    assert maps.target_of("flights", 3, 5) == (100, False)
    assert maps.target_of("flights", 3, 10) == (104, True)
    assert maps.target_of("flights", 3, 11) == (104, False)


@pytest.mark.parametrize("is_committed", [False, True])
def test_what_a_crash_left_staged_is_settled_by_the_committed_position(tmp_path: Path, is_committed: bool) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        writer.settle(None)
        writer.stage([MapRun(0, 4, 3, 0, 5)])
        writer.confirm()
        writer.stage([MapRun(5, 9, 3, 6, 5)], 12)
    committed = 12 if is_committed else 5
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 7) == (5, False), "a reader waits for the verdict"
    assert OffsetMap.open(tmp_path, {SOURCE: committed}).target_of("flights", 3, 7) == ((8, True) if is_committed else (5, False))
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        assert writer.settle(committed) == committed
        if not is_committed:
            writer.stage([MapRun(5, 9, 3, 12, 5)], 12)
            writer.confirm()
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 7) == (8 if is_committed else 14, True)


def test_a_crash_at_any_byte(tmp_path: Path) -> None:
    """Each prefix of a file is a map that settles to what the target has, and goes on."""
    copied, _position = write(tmp_path, [([0, 1, 0], 0, 1), ([0, 0], 2, 0), ([2], 1, 0)])
    data = map_path(tmp_path, SOURCE).read_bytes()
    head_bytes = 8 + int.from_bytes(data[:4], "little")  # written in one step, with a rename
    for length in range(head_bytes, len(data), 3):
        folder = tmp_path / str(length)
        folder.mkdir()
        path = map_path(folder, SOURCE)
        path.write_bytes(data[:length])
        state = read_state(path)
        assert state is not None
        for committed in {state.next_source_offset, state.staged_position or state.next_source_offset}:
            path.write_bytes(data[:length])
            with OffsetMapWriter(folder, SOURCE, "copy") as writer:
                assert writer.settle(committed) == committed
                writer.stage([MapRun(committed, committed, 3, 1000, 1)])
                writer.confirm()
            expected = {source: target for source, target in copied.items() if source < committed} | {committed: 1000}
            check(OffsetMap.open(folder).partition(SOURCE), expected, 0, committed + 1)


def test_room_that_a_crash_left_empty_is_no_chunk(tmp_path: Path) -> None:
    write(tmp_path, [([0, 0], 0, 0)])
    path = map_path(tmp_path, SOURCE)
    path.write_bytes(path.read_bytes() + bytes(40))
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        assert writer.settle(2) == 2
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 1) == (1, True)


def test_a_zombie_stages_nothing(tmp_path: Path) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as old, OffsetMapWriter(tmp_path, SOURCE, "copy") as new:
        old.settle(None)
        assert new.settle(None) == 0
        old.stage([MapRun(0, 9, 3, 0, 10)])
        new.stage([MapRun(0, 9, 3, 20, 10)])
        new.confirm()
        old.confirm()
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 5) == (25, True)


def test_what_was_copied_without_a_map_is_never_passed_over(tmp_path: Path) -> None:
    write(tmp_path, [([0, 0], 0, 0)])
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        assert writer.settle(10) == 10
        writer.stage([MapRun(10, 11, 3, 50, 2)])
        writer.confirm()
    maps = OffsetMap.open(tmp_path)
    assert [tuple(maps.target_of("flights", 3, at)) for at in (2, 3, 9, 10, 11)] == [
        (2, True),
        (2, False),
        (2, False),
        (50, True),
        (51, True),
    ]


def test_discard(tmp_path: Path) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        writer.settle(None)
        writer.stage([MapRun(0, 4, 3, 0, 5)])
        writer.discard()
        writer.stage([MapRun(0, 4, 3, 7, 5)])
        writer.confirm()
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 0) == (7, True)


def test_what_does_not_follow_is_refused(tmp_path: Path) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        with pytest.raises(InvalidArgumentError, match="settle"):
            writer.stage([MapRun(0, 1, 3, 0, 2)])
        writer.settle(None)
        writer.stage([MapRun(0, 4, 3, 0, 5)])
        with pytest.raises(InvalidArgumentError, match="confirm or discard"):
            writer.stage([MapRun(5, 5, 3, 5, 1)])
        writer.confirm()
        with pytest.raises(InvalidArgumentError, match="overlaps the previous run"):
            writer.stage([MapRun(4, 5, 3, 5, 2)])
        with pytest.raises(InvalidArgumentError, match="below the end of the runs"):
            writer.stage([MapRun(5, 5, 3, 5, 1)], 5)
    with (
        OffsetMapWriter(tmp_path, SOURCE, "copy") as writer,
        pytest.raises(InvalidArgumentError, match="is below the position confirmed"),
    ):
        writer.settle(4)
    with pytest.raises(InvalidArgumentError, match="a different target topic"):
        OffsetMapWriter(tmp_path, SOURCE, "other")


def test_a_forgotten_position_counts_unless_something_is_staged(tmp_path: Path) -> None:
    write(tmp_path, [([0, 0], 0, 0)])
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        assert writer.settle(None) == 2
        writer.stage([MapRun(2, 2, 3, 2, 1)])
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer, pytest.raises(InvalidArgumentError, match="forgotten"):
        writer.settle(None)


def test_damage_is_said(tmp_path: Path) -> None:
    write(tmp_path, [([0, 0], 0, 0), ([0], 0, 0)])
    path = map_path(tmp_path, SOURCE)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError):
        OffsetMap.open(tmp_path).target_of("flights", 3, 0)
    path.write_bytes(chunk(3, 5))
    with pytest.raises(CorruptDataError, match="has no header"):
        read_state(path)
    with pytest.raises(NotFoundError, match="no offset map for other-0"):
        OffsetMap.open(tmp_path).target_of("other", 0, 0)
    with pytest.raises(NotFoundError):
        OffsetMap.open(tmp_path / "nowhere")


def test_a_map_under_another_ones_name_is_refused(tmp_path: Path) -> None:
    """As of a backup that was put back wrongly: its offsets would send a group to another place."""
    write(tmp_path, [([0, 0], 0, 0)])
    other = TopicPartition(SOURCE.topic, SOURCE.partition + 1)
    map_path(tmp_path, SOURCE).rename(map_path(tmp_path, other))
    for attempt in (
        lambda: OffsetMap.open(tmp_path).partition(other),
        lambda: OffsetMapWriter(tmp_path, other, "copy"),
    ):
        with pytest.raises(
            InvalidArgumentError, match=r"the offset map belongs to a different partition: found flights-3 .*flights-4"
        ):
            attempt()


def test_partitions_of_a_folder(tmp_path: Path) -> None:
    for key in (TopicPartition("a-b", 10), SOURCE):
        OffsetMapWriter(tmp_path, key, "copy").close()
    (tmp_path / "groups.json").write_text("{}")
    assert OffsetMap.open(tmp_path).partitions() == [TopicPartition("a-b", 10), SOURCE]
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 5) == (0, False), "nothing was copied: read everything"


def test_half_a_chunk_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OffsetMapWriter(tmp_path, SOURCE, "copy") as writer:
        writer.settle(None)
        before = map_path(tmp_path, SOURCE).read_bytes()
        real = os.write
        answers = iter([lambda fd, data: real(fd, data[:5])])

        def write_some(fd: int, data: bytes) -> int:
            for answer in answers:
                return answer(fd, data)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", write_some)
        with pytest.raises(StorageError, match="No space left"):
            writer.stage([MapRun(0, 4, 3, 0, 5)])
        monkeypatch.undo()
        assert map_path(tmp_path, SOURCE).read_bytes() == before
        writer.stage([MapRun(0, 4, 3, 0, 5)])
        writer.confirm()
    assert OffsetMap.open(tmp_path).target_of("flights", 3, 4) == (4, True)
