"""Splits: cut between batches, small, and never fewer rows when the files change under them."""

from __future__ import annotations

import os
import pickle
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

import tidelog
from tests.sources.logs import ROW_COLUMNS, TOPIC, LogBuilder, plain, rows_of
from tidelog.errors import CorruptBatchError, InvalidArgumentError, SegmentChangedError
from tidelog.records.batch import iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.sources.files.folder_source import FolderSource
from tidelog.sources.files.folder_split import FolderSplit
from tidelog.sources.plan import plan
from tidelog.sources.scan_plan import ScanPlan, ScanRequest
from tidelog.sources.split_reader import read_split


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    """One partition, three segments of 40 batches of 5 records."""
    builder = LogBuilder(tmp_path / "data", segment_bytes=1 << 20)
    for segment in range(3):
        if segment:
            builder.roll()
        for batch in range(40):
            base = 1000 * segment + 10 * batch
            builder.append([(base + i, b"key %d" % i, b"value" * 10) for i in range(5)])
    builder.close(high_watermark=600)
    return builder


def rows(splits: tuple[FolderSplit, ...]) -> list[tuple[object, ...]]:
    return [row for split in splits for row in rows_of(read_split(split, ROW_COLUMNS))]


def planned(builder: LogBuilder, **arguments: object) -> ScanPlan[FolderSplit]:
    return plan(builder.data_dir, TOPIC, **arguments)  # type: ignore[arg-type]


def test_one_split_a_segment_unless_told_otherwise(builder: LogBuilder) -> None:
    splits = planned(builder).splits
    assert [split.base_offset for split in splits] == [0, 200, 400]
    assert [split.size_bytes for split in splits] == [path.stat().st_size for path in builder.logs()]


@pytest.mark.parametrize("split_bytes", [1, 500, 3000, 1 << 30])
@pytest.mark.parametrize("indexes", ["kept", "removed", "scrambled"])
def test_cuts_fall_between_batches(builder: LogBuilder, split_bytes: int, indexes: str) -> None:
    for path in builder.directory.glob("*.index"):
        if indexes == "removed":
            path.unlink()
        elif indexes == "scrambled":
            path.write_bytes(bytes(reversed(path.read_bytes())))
    splits = planned(builder, split_bytes=split_bytes).splits
    boundaries = {path: {header.position for header in iter_headers(path.read_bytes())} for path in builder.logs()}
    for split in splits:
        assert split.start_position in boundaries[Path(split.path)]
    for before, after in pairwise(splits):
        if before.path == after.path:
            assert before.end_position == after.start_position
    assert rows(splits) == plain(builder.rows)
    assert rows(pickle.loads(pickle.dumps(splits))) == plain(builder.rows)
    if split_bytes == 1:
        assert len(splits) == 120


def test_min_splits_cuts_one_segment_for_all_cores(builder: LogBuilder) -> None:
    splits = planned(builder, offsets={0: (0, 200)}, min_splits=8).splits
    assert len({split.path for split in splits}) == 1
    assert len(splits) == 8
    sizes = [split.size_bytes for split in splits]
    assert max(sizes) < 2 * min(sizes)


def test_a_split_is_small(builder: LogBuilder) -> None:
    assert all(len(pickle.dumps(split)) < 1000 for split in planned(builder, min_splits=30).splits)


def test_segments_and_heads_before_the_start_are_not_read(builder: LogBuilder) -> None:
    found = planned(builder, start=1205)
    assert [split.base_offset for split in found.splits] == [200, 400]
    assert 0 < found.splits[0].start_position < found.splits[0].end_position
    assert found.partitions[0].segments == 3
    assert found.partitions[0].segments_read == 2


def test_nothing_to_read_is_a_plan_without_splits(builder: LogBuilder) -> None:
    assert planned(builder, start=10_000).splits == ()
    assert planned(builder, start=5, end=5).splits == ()
    assert planned(builder, end=0).splits == ()
    assert planned(builder, offsets={0: (7, 7)}).splits == ()


def test_a_deleted_segment_is_read_under_its_new_name(builder: LogBuilder) -> None:
    splits = planned(builder).splits
    for path in builder.logs()[:2]:
        path.rename(f"{path}.deleted")
    assert rows(splits) == plain(builder.rows)


def test_a_vanished_segment_is_an_error(builder: LogBuilder) -> None:
    splits = planned(builder).splits
    builder.logs()[0].unlink()
    with pytest.raises(SegmentChangedError):
        rows(splits)


def test_what_a_broker_deletes_after_the_call_is_read_all_the_same(builder: LogBuilder) -> None:
    wanted = rows(planned(builder).splits)
    reader = tidelog.scan(builder.data_dir, TOPIC, columns=ROW_COLUMNS)
    for path in builder.logs():
        path.unlink()
    assert rows_of(reader) == wanted


def test_a_segment_that_vanishes_while_the_plan_is_made_is_planned_around(
    builder: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention took the oldest segment between the plan and its first open: what is left is read, no row of it twice."""
    wanted = rows(planned(builder).splits[1:])
    plans: list[ScanPlan[FolderSplit]] = []

    plan_folder = FolderSource.plan

    def plan_and_lose_one(source: FolderSource, request: ScanRequest) -> ScanPlan[FolderSplit]:
        plans.append(plan_folder(source, request))
        builder.logs()[0].unlink() if len(plans) == 1 else None
        return plans[-1]

    monkeypatch.setattr(FolderSource, "plan", plan_and_lose_one)
    assert rows_of(tidelog.scan(builder.data_dir, TOPIC, columns=ROW_COLUMNS)) == wanted
    assert len(plans) == 2


def test_a_copy_of_the_folder_is_as_good(builder: LogBuilder) -> None:
    splits = planned(builder, split_bytes=700).splits
    for path in builder.logs():
        shutil.copy(path, f"{path}.copy")
        Path(f"{path}.copy").replace(path)
    assert rows(splits) == plain(builder.rows)


def test_a_shrunken_segment_is_an_error(builder: LogBuilder) -> None:
    splits = planned(builder, split_bytes=700).splits
    last = builder.logs()[-1]
    os.truncate(last, last.stat().st_size - 1)
    with pytest.raises(SegmentChangedError, match="truncated"):
        rows(splits)


def test_a_segment_that_grew_gives_what_was_planned(builder: LogBuilder) -> None:
    splits = planned(builder).splits
    with builder.logs()[-1].open("ab") as file:
        file.write(build_batch_v2([Record(600, 5, 0, b"k", b"v")]))
    assert rows(splits) == plain(builder.rows)


def test_a_truncated_and_refilled_segment_is_an_error(builder: LogBuilder) -> None:
    """What a follower does when its leader's log differs: same inode, same sizes, other records."""
    splits = planned(builder).splits
    last = builder.logs()[-1]
    data = last.read_bytes()
    header = list(iter_headers(data))[-1]
    records = [Record(header.base_offset + i, 2390 + i, 0, b"key %d" % i, b"other" * 10) for i in range(5)]
    other = build_batch_v2(records, leader_epoch=0)
    assert len(other) == header.size
    last.write_bytes(data[: header.position] + other)
    with pytest.raises(SegmentChangedError, match="replaced"):
        rows(splits)


def compact(path: Path, *, keep_old: bool) -> None:
    """Replace a segment by one that lacks its third batch, as the log cleaner does: same name, other file."""
    data = path.read_bytes()
    headers = list(iter_headers(data))
    cleaned = data[: headers[2].position] + data[headers[3].position :]
    if keep_old:
        path.rename(f"{path}.deleted")
    else:
        path.unlink()
    path.write_bytes(cleaned)


def test_a_compacted_segment_is_read_from_the_file_that_it_replaced(builder: LogBuilder) -> None:
    splits = planned(builder).splits
    compact(builder.logs()[0], keep_old=True)
    assert rows(splits) == plain(builder.rows)


def test_a_compacted_segment_is_an_error_when_the_old_one_is_gone(builder: LogBuilder) -> None:
    whole, cut = planned(builder).splits, planned(builder, split_bytes=700).splits
    compact(builder.logs()[0], keep_old=False)
    assert rows(cut[:1]) == plain(builder.rows[: len(rows(cut[:1]))])  # nothing has changed up to there
    for split in (whole[0], cut[1], cut[3]):
        with pytest.raises(SegmentChangedError):
            list(read_split(split))


def test_a_segment_replaced_while_it_is_read_is_an_error(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.sources.files.folder_batches.CHUNK_BYTES", 600)
    split = planned(builder).splits[0]
    batches = read_split(split, ["offset"], batch_rows=5)
    assert next(batches).num_rows == 5
    os.truncate(split.path, 1500)
    with pytest.raises(SegmentChangedError, match="truncated"):
        list(batches)


def test_damage_is_an_error_with_path_and_position(builder: LogBuilder) -> None:
    split = planned(builder).splits[0]
    data = bytearray(Path(split.path).read_bytes())
    damaged = list(iter_headers(data))[7]
    data[damaged.position + 100] ^= 1
    Path(split.path).write_bytes(data)
    with pytest.raises(CorruptBatchError) as caught:
        list(read_split(split))
    assert caught.value.path == split.path
    assert caught.value.position == damaged.position


def test_a_flipped_largest_timestamp_hides_nothing(builder: LogBuilder) -> None:
    split = planned(builder, start=50).splits[0]
    data = bytearray(Path(split.path).read_bytes())
    damaged = next(header for header in iter_headers(data) if header.position > split.start_position)
    data[damaged.position + 35 : damaged.position + 43] = (3).to_bytes(8, "big")
    Path(split.path).write_bytes(data)
    with pytest.raises(CorruptBatchError, match="checksum"):
        list(read_split(split))


@pytest.mark.parametrize("arguments", [{"split_bytes": 0}, {"min_splits": -1}])
def test_sizes_must_be_positive(builder: LogBuilder, arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="positive"):
        planned(builder, **arguments)
