"""Scans with time maps: the same rows as without, from as little of the log as the range needs."""

from __future__ import annotations

import os
import pickle
import shutil
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.sources.logs import ROW_COLUMNS, TOPIC, LogBuilder, expected, plain, rows_of
from tests.sources.test_property import NOON, steps, write
from tests.sources.test_split import compact
from tidelog.errors import CorruptBatchError, NotFoundError, SegmentChangedError
from tidelog.formats.time_map import TimeMap
from tidelog.reader.time_map_file import read_time_map, rebuild_time_map, time_map_path
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec
from tidelog.sources.plan import plan
from tidelog.sources.split_reader import read_split

T = 1_373_446_800_000
MINUTE = 60_000


def map_of(log: Path, directory: Path | None = None, **how: Any) -> TimeMap:
    found = rebuild_time_map(log, directory, **how)
    assert found is not None
    return found


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    """Three segments of 60 batches of 4 records, a minute a batch; one batch in ten is an hour late. Blocks of 2 batches."""
    builder = LogBuilder(tmp_path / "data", segment_bytes=1 << 20)
    for segment in range(3):
        if segment:
            builder.roll()
        for n in range(60):
            late = 60 if n % 10 == 7 else 0
            first = T + (60 * segment + n - late) * MINUTE
            builder.append([(first + i, b"key %d" % i, b"value" * 10) for i in range(4)])
    builder.close()
    return builder


def with_maps(builder: LogBuilder, directory: Path | None = None, block_bytes: int = 400) -> list[TimeMap]:
    return [map_of(log, directory, block_bytes=block_bytes) for log in builder.logs()]


def scan(
    builder: LogBuilder, start: int | None, end: int | None, **arguments: Any
) -> tuple[list[tuple[Any, ...]], tidelog.ScanReport]:
    report = tidelog.ScanReport()
    reader = tidelog.scan(builder.data_dir, TOPIC, start, end, columns=ROW_COLUMNS, report=report, **arguments)
    return rows_of(reader), report


def holding(maps: list[TimeMap], rows: list[tuple[Any, ...]]) -> int:
    """Blocks that hold one of the rows."""
    return sum(
        len({bisect_right(one.first_offsets, row[1]) for row in rows if one.base_offset <= row[1] < one.next_offset})
        for one in maps
    )


@pytest.mark.parametrize("minutes", [(70, 75), (0, 1), (-60, 0), (100, 9999), (59, 61), (178, 179), (30, 30)])
def test_both_ends_are_pruned(builder: LogBuilder, minutes: tuple[int, int]) -> None:
    start, end = T + minutes[0] * MINUTE, T + minutes[1] * MINUTE
    without, all_of_it = scan(builder, start, end)
    maps = with_maps(builder)
    found, report = scan(builder, start, end)
    assert found == without == plain(expected(builder, start, end))
    assert holding(maps, found) <= report.blocks_read <= 1.2 * holding(maps, found) + 3
    assert report.blocks_read + report.blocks_skipped == (sum(one.blocks for one in maps) if start < end else 0)
    assert report.bytes_read <= all_of_it.bytes_read
    assert report.bytes_read == sum(split.size_bytes for split in plan(builder.data_dir, TOPIC, start=start, end=end).splits)
    if minutes == (70, 75):
        assert report.blocks_read == holding(maps, found) == 3


@pytest.mark.parametrize("end", [None, T + 100 * MINUTE])
@pytest.mark.parametrize("start", [None, T + 50 * MINUTE])
def test_one_end_alone(builder: LogBuilder, start: int | None, end: int | None) -> None:
    with_maps(builder)
    found, report = scan(builder, start, end)
    assert found == plain(expected(builder, start, end))
    assert (report.blocks_skipped > 0) == (start is not None or end is not None)


def test_without_a_time_bound_no_map_is_opened(builder: LogBuilder) -> None:
    for log in builder.logs():
        os.mkfifo(time_map_path(log))  # opening it would be reported
    found, report = scan(builder, None, None)
    assert found == plain(builder.rows)
    assert report.blocks_read == report.blocks_skipped == 0


def test_maps_in_a_folder_of_ones_own(builder: LogBuilder, tmp_path: Path) -> None:
    maps = with_maps(builder, tmp_path / "maps")
    bounds = T + 70 * MINUTE, T + 75 * MINUTE
    found, report = scan(builder, *bounds, time_map_dir=tmp_path / "maps")
    assert found == plain(expected(builder, *bounds))
    assert report.blocks_read == holding(maps, found)
    assert scan(builder, *bounds)[1].blocks_read == 0
    with pytest.raises(NotFoundError, match="the time map directory does not exist"):
        tidelog.scan(builder.data_dir, TOPIC, *bounds, time_map_dir=tmp_path / "nowhere")


def test_a_copy_is_compared_and_said_so(builder: LogBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bound maps cost no look at the log; a copy's are compared with as much of it as a scan without them would read."""
    maps = with_maps(builder)
    bounds: dict[str, Any] = {"start": T + 70 * MINUTE, "end": T + 75 * MINUTE}
    bound = plan(builder.data_dir, TOPIC, **bounds)
    copied = shutil.copytree(builder.data_dir, tmp_path / "copied")
    compared = plan(copied, TOPIC, **bounds)
    rows = [[rows_of(read_split(split, ROW_COLUMNS)) for split in one.splits] for one in (bound, compared)]
    assert rows[0] == rows[1] and rows[0]
    assert compared.size_bytes <= 2 * bound.size_bytes
    assert not bound.notes
    assert [note.split(":")[0] for note in compared.notes] == [f"{TOPIC}-0"]
    assert "2 time maps were made from a different copy" in compared.notes[0]
    # The last batch of the first segment's middle is another one now: that map alone is not used.
    log = copied / f"{TOPIC}-0" / builder.logs()[1].name
    data = bytearray(log.read_bytes())
    data[maps[1].positions[20] + 20] ^= 1
    log.write_bytes(data)
    assert "time maps were made" in plan(copied, TOPIC, **bounds).notes[0]
    assert sum("does not agree with its segment" in record.message for record in caplog.records) == 1


def test_offsets_and_times_together(builder: LogBuilder) -> None:
    maps = with_maps(builder)
    for first, last in ((0, 400), (283, 300), (239, 241), (700, None), (719, 720), (None, 3)):
        bounds = T + 60 * MINUTE, T + 130 * MINUTE
        found, report = scan(builder, *bounds, offsets={0: (first, last)})
        assert found == plain(expected(builder, *bounds, first=first or 0, last=last))
        assert holding(maps, found) <= report.blocks_read <= holding(maps, found) + 3


def test_many_runs_are_one_split_a_segment_unless_told_otherwise(builder: LogBuilder) -> None:
    with_maps(builder, block_bytes=1)
    bounds: dict[str, Any] = {"start": T + 60 * MINUTE, "end": T + 120 * MINUTE}
    whole = plan(builder.data_dir, TOPIC, **bounds)
    assert [split.base_offset for split in whole.splits] == [240, 480]
    assert [len(split.runs) for split in whole.splits] == [7, 6]
    assert str(whole.splits[1]).endswith(" in 6 runs")
    wanted = plain(expected(builder, **bounds))
    for how in ({}, {"split_bytes": 1}, {"split_bytes": 500}, {"split_bytes": 1 << 20}, {"min_splits": 5}, {"min_splits": 999}):
        splits = pickle.loads(pickle.dumps(plan(builder.data_dir, TOPIC, **bounds, **how).splits))
        assert [row for split in splits for row in rows_of(read_split(split, ROW_COLUMNS))] == wanted
        assert sum(split.size_bytes for split in splits) == whole.size_bytes
        for split in splits:
            assert all(one.end_position < other.start_position for one, other in pairwise(split.runs))
        assert len(splits) >= min(how.get("min_splits", 1), 60)


def test_a_segment_that_changes_between_plan_and_read(builder: LogBuilder) -> None:
    """Never fewer rows, also where a run in the middle, or what lies between two of them, has moved."""
    with_maps(builder, block_bytes=1)
    bounds: dict[str, Any] = {"start": T + 60 * MINUTE, "end": T + 120 * MINUTE}
    split = plan(builder.data_dir, TOPIC, **bounds).splits[0]
    wanted = rows_of(read_split(split, ROW_COLUMNS))
    log = Path(split.path)
    data = log.read_bytes()
    headers = {header.position: header for header in iter_headers(data)}
    last_of_second = headers[split.runs[1].last.position]
    other = headers[split.runs[1].first.position]
    assert last_of_second.size == other.size
    moved = bytearray(data)
    moved[last_of_second.position : last_of_second.end_position] = data[other.position : other.end_position]
    log.write_bytes(moved)
    with pytest.raises((SegmentChangedError, CorruptBatchError)):
        list(read_split(split))
    log.write_bytes(data)
    assert rows_of(read_split(split, ROW_COLUMNS)) == wanted
    os.truncate(log, split.runs[-1].end_position - 1)
    with pytest.raises(SegmentChangedError):
        list(read_split(split))
    log.write_bytes(data)
    compact(log, keep_old=False)
    with pytest.raises(SegmentChangedError):
        list(read_split(split))


def test_a_segment_compacted_since_the_map_is_read_without_it(builder: LogBuilder, caplog: pytest.LogCaptureFixture) -> None:
    with_maps(builder)
    log = builder.logs()[1]
    compact(log, keep_old=False)
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).unlink()
    gone = range(248, 252)
    bounds = T + 58 * MINUTE, T + 75 * MINUTE
    found, report = scan(builder, *bounds)
    assert found == [row for row in plain(expected(builder, *bounds)) if row[1] not in gone]
    assert 0 < report.blocks_read < 10
    assert sum(".timemap: a time map is longer" in record.message for record in caplog.records) == 1


def test_a_mismatch_that_only_a_run_shows(builder: LogBuilder, caplog: pytest.LogCaptureFixture) -> None:
    """No sample meets it, the end of a run that is read does: the segment is then read without the map."""
    maps = with_maps(builder, block_bytes=1)
    found = maps[1]
    found.last_batches[14] += 1
    time_map_path(builder.logs()[1]).write_bytes(found.to_bytes())
    bounds = T + 74 * MINUTE, T + 75 * MINUTE
    rows, report = scan(builder, *bounds)
    assert rows == plain(expected(builder, *bounds))
    assert report.blocks_skipped == maps[0].blocks + maps[2].blocks - report.blocks_read
    assert [".timemap: a time map does not agree" in record.message for record in caplog.records] == [True]


def test_damage_is_an_error_where_it_is_read(builder: LogBuilder) -> None:
    maps = with_maps(builder)
    log = builder.logs()[1]
    data = bytearray(log.read_bytes())
    data[maps[1].positions[20] + 70] ^= 1
    log.write_bytes(data)
    elsewhere = T + 70 * MINUTE, T + 75 * MINUTE
    assert scan(builder, *elsewhere)[0] == plain(expected(builder, *elsewhere))
    with pytest.raises(CorruptBatchError):
        scan(builder, T + 100 * MINUTE, T + 101 * MINUTE)


def test_records_without_timestamp_are_counted_also_where_they_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=1 << 20)
    for n in range(40):
        builder.append([(T + n * MINUTE, b"k", b"v"), (-1 if n % 2 else T + n * MINUTE, b"k", b"v")])
    for _ in range(5):
        builder.append([(T, b"k", b"v")] * 3, magic=0, codec=Codec.SNAPPY)
    builder.close()
    bounds = T + 10 * MINUTE, T + 11 * MINUTE
    assert scan(builder, *bounds)[1].without_timestamp <= 35
    found = map_of(builder.logs()[0], block_bytes=300)
    caplog.clear()
    rows, report = scan(builder, *bounds)
    assert rows == plain(expected(builder, *bounds))
    # All 35 but for one: in the block that is read, a header rules its batch out.
    assert report.without_timestamp == 34
    assert report.blocks_read < found.blocks / 4
    assert [record.message for record in caplog.records] == [
        "orders: 34 records without a timestamp left out, because the scan has a time bound"
    ]
    # Of blocks that an offset bound cuts only a part counts: these are looked at.
    assert plan(tmp_path, TOPIC, start=bounds[0], end=bounds[1]).known.without_timestamp == 33
    assert [block for block in found.without_timestamp if block][-1] >= 3
    assert scan(builder, *bounds, offsets={0: (None, 93)})[1].without_timestamp == 32
    assert scan(builder, *bounds, offsets={0: (None, 92)})[1].without_timestamp == 31


def test_a_grown_segment_is_pruned_as_far_as_the_map_reaches(builder: LogBuilder, tmp_path: Path) -> None:
    maps = with_maps(builder)
    grown = LogBuilder(tmp_path / "grown", segment_bytes=1 << 20)
    for segment in range(3):
        if segment:
            grown.roll()
        rows = builder.rows[240 * segment : 240 * (segment + 1)]
        for first in range(0, 240, 4):
            grown.append([(row.timestamp, row.key, row.value) for row in rows[first : first + 4]])
    for n in range(30):
        grown.append([(T + (180 + n) * MINUTE, b"late", b"x"), (T + 65 * MINUTE, b"late", b"x")])
    grown.close()
    for log in builder.logs():
        shutil.copy(time_map_path(log), grown.directory)
    covered = builder.logs()[-1].stat().st_size
    for bounds in ((T + 65 * MINUTE, T + 66 * MINUTE), (T + 190 * MINUTE, None), (None, T + 2 * MINUTE)):
        found, report = scan(grown, *bounds)
        assert found == plain(expected(grown, *bounds))
        covered_rows = [row for row in found if row[1] < 720]
        assert holding(maps, covered_rows) <= report.blocks_read <= holding(maps, covered_rows) + 3
    tail = plan(grown.data_dir, TOPIC, start=T + 190 * MINUTE).splits
    assert [split.base_offset for split in tail] == [480]
    assert tail[0].start_position >= covered


def in_the_way(builder: LogBuilder, found: TimeMap) -> list[int]:
    """Blocks of one batch that may hold records of aborted transactions, and hold some without timestamp."""
    return [
        block
        for block in range(found.blocks - 1)
        if found.without_timestamp[block]
        and any(first < found.end_offset(block) and last >= found.first_offsets[block] for _, first, last in builder.aborted)
    ]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(tmp_path: Path, isolation: str) -> None:
    """Markers have no time that counts, and what is withheld is not counted as being without one."""
    builder = LogBuilder(tmp_path, segment_bytes=1 << 20)
    for n in range(30):
        times = [T + n * MINUTE, -1]
        builder.append([(time, b"k", b"v") for time in times], producer_id=n % 3)
        if n % 3 == 2:
            for producer_id in range(3):
                builder.end_transaction(producer_id, T + 15 * MINUTE, commit=(n + producer_id) % 2 == 0)
    builder.append([(T, b"open", b"v"), (-1, b"open", b"v")], producer_id=9)
    builder.close()
    found = map_of(builder.logs()[0], block_bytes=1)
    assert found.blocks == 61
    bounds = T + 10 * MINUTE, T + 12 * MINUTE
    rows, report = scan(builder, *bounds, isolation=isolation)
    committed = isolation == "read_committed"
    assert rows == plain(expected(builder, *bounds, committed=committed))
    without = [row.offset for row in expected(builder, committed=committed) if row.timestamp < 0]
    in_time = set(found.blocks_in_time(range(found.blocks), *bounds))
    assert len(in_time) == 2
    assert report.blocks_read == len(in_time | set(in_the_way(builder, found)) if committed else in_time)
    assert len(without) - report.blocks_read <= report.without_timestamp <= len(without)


MAPS = ["right", "right", "right", "none", "of a part", "damaged", "of another log", "of another segment"]


def spoil(path: Path, where: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[where % len(data)] ^= mask
    path.write_bytes(data)


@examples(80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
@pytest.mark.usefixtures("quiet")
def test_a_scan_with_maps_is_a_scan_without_is_a_plain_filter(data: st.DataObject) -> None:
    """Random logs of every kind of batch; each segment's map right, missing, old, of less, of another log, damaged."""
    happened = data.draw(st.lists(steps(), max_size=16), label="log")
    other = data.draw(st.lists(steps(), max_size=4), label="another log's end")
    how: dict[str, Any] = {
        "segment_bytes": data.draw(st.sampled_from([200, 1000, 1 << 20]), label="segment_bytes"),
        "index_interval_bytes": data.draw(st.sampled_from([0, 100]), label="index_interval_bytes"),
    }
    block_bytes = data.draw(st.sampled_from([1, 100, 400, 65536]), label="block_bytes")
    with TemporaryDirectory() as folder:
        builder = write(Path(folder) / "data", happened, **how)
        # What a follower's log was before it was cut back and went another way, or one of another topic altogether.
        kept = data.draw(st.integers(0, len(happened)), label="kept")
        former = write(Path(folder) / "former", [*happened[:kept], *other], **how)
        builder.close()
        former.close()
        maps = data.draw(st.sampled_from([None, Path(folder) / "maps"]), label="folder of maps")
        if maps is not None:
            maps.mkdir()
        logs = builder.logs()
        for log in logs:
            state = data.draw(st.sampled_from(MAPS), label=f"map of {log.stem}")
            path = time_map_path(log, maps)
            if state == "of another log":
                before = former.directory / log.name
                found = rebuild_time_map(before, Path(folder) / "others", block_bytes=block_bytes) if before.exists() else None
                if found is not None:
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(found.to_bytes())
            elif state == "of another segment":
                found = rebuild_time_map(logs[0], Path(folder) / "others", block_bytes=block_bytes)
                if found is not None:
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(found.to_bytes())
            elif state != "none":
                end = log.stat().st_size
                if state == "of a part":
                    ends = [0, *(header.end_position for header in iter_headers(log.read_bytes()))]
                    end = data.draw(st.sampled_from(ends), label="covered")
                found = rebuild_time_map(log, maps, block_bytes=block_bytes, end_position=end)
                if found is not None and state == "damaged":
                    spoil(path, data.draw(st.integers(0, 5000), label="where"), data.draw(st.integers(1, 255), label="mask"))
        seen = sorted({row.timestamp for row in builder.rows if row.timestamp > 0} | {NOON})
        bound = st.one_of(st.none(), st.sampled_from(seen), st.sampled_from(seen).map(lambda ms: ms + 1), st.integers(0, 4))
        for _ in range(3):
            start, end_ms = data.draw(bound, label="start"), data.draw(bound, label="end")
            if start is not None and end_ms is not None and end_ms < start:
                start, end_ms = end_ms, start
            ends_of = st.one_of(st.none(), st.integers(0, builder.next_offset))
            first, last = data.draw(ends_of, label="first"), data.draw(ends_of, label="last")
            if first is not None and last is not None and last < first:
                first, last = last, first
            committed = data.draw(st.booleans(), label="committed")
            asked: dict[str, Any] = {
                "offsets": {0: (first, last)},
                "isolation": "read_committed" if committed else "read_uncommitted",
            }
            wanted = expected(builder, start, end_ms, first=first or 0, last=last, committed=committed)
            rows, report = scan(builder, start, end_ms, time_map_dir=maps, **asked)
            assert rows == plain(wanted)
            splits = plan(
                builder.data_dir,
                TOPIC,
                start=start,
                end=end_ms,
                time_map_dir=maps,
                split_bytes=data.draw(st.sampled_from([1, 300])),
                **asked,
            ).splits
            assert [row for split in splits for row in rows_of(read_split(split, ROW_COLUMNS))] == plain(wanted)
            hidden = [path.rename(f"{path}.hidden") for path in Path(folder).glob("**/*.timemap")]
            without, plain_report = scan(builder, start, end_ms, **asked)
            for path in hidden:
                path.rename(str(path).removesuffix(".hidden"))
            assert without == rows
            if start is not None or end_ms is not None:
                all_of_them = expected(builder, first=first or 0, last=last, committed=committed)
                assert plain_report.without_timestamp <= report.without_timestamp <= sum(row.timestamp < 0 for row in all_of_them)
            assert report.bytes_read <= plain_report.bytes_read or report.blocks_read


def test_a_map_tells_where_a_block_ends() -> None:
    """The path of a map follows from its segment's, also where the folder is the current one."""
    here = Path.cwd()
    assert time_map_path(Path("00000000000000000007.log")) == here / "00000000000000000007.timemap"
    assert time_map_path("a/b-0/00000000000000000007.log.swap", "maps") == Path("maps/b-0/00000000000000000007.timemap")
    assert read_time_map(here / "nothing.timemap") is None
