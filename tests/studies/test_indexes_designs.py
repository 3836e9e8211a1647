"""Each design's entries and look-ups against plain models: loops over all records."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.indexes.builders import AppendTimeIndex, EntryFiles, GranularIndex, MinuteMap, WideOffsetIndex
from studies.indexes.readers import (
    AppendTimeReader,
    GranularReader,
    MinuteMapReader,
    NaiveMinuteMapReader,
    TimeIndexReader,
    WideReader,
)
from studies.indexes.side_by_side import HALF_LATE, IN_ORDER, look_up_all
from studies.indexes.starting import rebuild, rebuild_time_index, start_clean
from studies.indexes.written_log import TOPIC, WalkedLog, WrittenLog, write_log
from studies.workload import (
    EPOCH_MS,
    HOUR_MS,
    MINUTE_MS,
    SMALL_LATENCY,
    Messages,
    Workload,
    WrongClock,
    generate,
)
from tests.examples import examples
from tests.fields import check_fields
from tidelog.clock import ManualClock
from tidelog.reader.log import Log
from tidelog.reader.time_search import find_offset
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

INTERVAL = 1024
PROPERTIES = {"segment.bytes": 24_000, "index.interval.bytes": INTERVAL}
BASE = Workload("tested", 5, 500, 2_000.0, IN_ORDER, value_bytes=150)
WORKLOADS = {
    "in order": BASE,
    "mildly": replace(BASE, latency=SMALL_LATENCY, interval_ms=15.0),
    "strongly": replace(BASE, latency=replace(HALF_LATE, late_ms=5 * MINUTE_MS)),
    "wrong clocks": replace(BASE, wrong_clock=WrongClock(0.02, HOUR_MS)),
}


class Written:
    """A small log with every design beside it."""

    def __init__(self, folder: Path, messages: Messages, kind: str) -> None:
        self.minute, self.second = GranularIndex(folder / "minute"), GranularIndex(folder / "second", 1000)
        self.map, self.wide = MinuteMap(folder / "map"), WideOffsetIndex(folder / "wide")
        self.append = AppendTimeIndex(folder / "append")
        self.builders: list[EntryFiles] = [self.minute, self.second, self.map, self.wide, self.append]
        properties = {**PROPERTIES, "message.timestamp.type": kind}
        self.log: WrittenLog = write_log(folder / "log", [(messages, 0)], self.builders, properties=properties)
        self.times: list[int] = self.log.timestamps.tolist()
        self.append_ms: list[int] = self.log.append_ms.tolist()


@pytest.fixture(scope="module", params=[(name, kind) for name in WORKLOADS for kind in ("CreateTime", "LogAppendTime")], ids=str)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    name, kind = request.param
    return Written(tmp_path_factory.mktemp("log"), generate(WORKLOADS[name]), kind)


def first_at(times: list[int], timestamp: int) -> int | None:
    return next((offset for offset, time in enumerate(times) if time >= timestamp), None)


def wanted(times: list[int]) -> list[int]:
    """Every fifth record's time, one more and one less, and times outside."""
    return [time + more for time in times[::5] for more in (-1, 0, 1)] + [0, min(times), max(times), max(times) + 1]


class TestLookUps:
    def test_accepted_index_against_every_record_and_the_engine(self, written: Written) -> None:
        with WalkedLog(written.log.directory) as walked, Log.open(written.log.directory) as log:
            reader = TimeIndexReader(walked)
            for timestamp in wanted(written.times):
                answer = reader.look_up(timestamp)
                found = find_offset(log, timestamp)
                assert answer.offset == first_at(written.times, timestamp) == (None if found is None else found.offset)
                if answer.offset is not None and answer.start_offset is not None:
                    assert answer.start_offset <= answer.offset
                    assert all(time < timestamp for time in written.times[: answer.start_offset])

    def test_minute_map_and_wide_index_on_any_times(self, written: Written) -> None:
        with WalkedLog(written.log.directory) as walked:
            for reader in (MinuteMapReader(walked, written.map.folder), WideReader(walked, written.wide.folder)):
                for timestamp in wanted(written.times):
                    assert reader.look_up(timestamp).offset == first_at(written.times, timestamp)

    def test_minute_and_second_index_where_times_never_go_back(self, written: Written) -> None:
        in_order = written.times == sorted(written.times)
        with WalkedLog(written.log.directory) as walked:
            for builder in (written.minute, written.second):
                reader = GranularReader(walked, builder.folder)
                for timestamp in wanted(written.times):
                    answer, truth = reader.look_up(timestamp).offset, first_at(written.times, timestamp)
                    if in_order:
                        assert answer == truth
                    elif answer is not None:  # Elsewhere they may be late, never early.
                        assert truth is not None
                        assert answer >= truth

    def test_append_time_index_is_early_by_less_than_a_minute(self, written: Written) -> None:
        with WalkedLog(written.log.directory) as walked:
            reader = AppendTimeReader(walked, written.append.folder)
            for timestamp in wanted(written.append_ms):
                answer, truth = reader.look_up(timestamp).offset, first_at(written.append_ms, timestamp)
                assert (answer is None) == (truth is None)
                if answer is not None and truth is not None:
                    assert answer <= truth
                    minutes = {written.append_ms[offset] // MINUTE_MS for offset in range(answer - 1, truth)}
                    assert answer == truth or len(minutes) == 1


class TestEntries:
    def test_accepted_index_is_the_files(self, written: Written) -> None:
        files = sorted(written.log.directory.glob("*.timeindex"))
        assert len(files) > 1
        with WalkedLog(written.log.directory) as walked:
            reader = TimeIndexReader(walked)
            assert reader.entries * reader.entry_bytes == sum(path.stat().st_size for path in files)
            sizes = [segment.offset_index.size_bytes for segment in walked.segments]
        assert sizes == [path.stat().st_size for path in sorted(written.log.directory.glob("*.index"))]

    def test_minute_map_holds_the_first_offset_of_each_minute(self, written: Written) -> None:
        for base, end in segments(written):
            expected: dict[int, int] = {}
            for offset in range(base, end):
                expected.setdefault(written.times[offset] // MINUTE_MS * MINUTE_MS, offset - base)
            assert dict(struct.iter_unpack(">qi", written.map.path(base).read_bytes())) == expected
            assert {minute: offset - base for minute, offset in written.map.minutes[base].items()} == expected

    @pytest.mark.parametrize("granule_ms", [MINUTE_MS, 1000])
    def test_granular_index_follows_the_offset_index(self, written: Written, granule_ms: int) -> None:
        builder = written.minute if granule_ms == MINUTE_MS else written.second
        for base, _ in segments(written):
            expected, last = [], -1
            for relative, _ in struct.iter_unpack(">ii", (written.log.directory / f"{base:020d}.index").read_bytes()):
                batch = written.times[base + relative - 3 : base + relative + 1]
                if max(batch) // granule_ms > last:
                    last = max(batch) // granule_ms
                    expected.append((max(batch), relative))
            assert list(struct.iter_unpack(">qi", builder.path(base).read_bytes())) == expected

    def test_wide_index_is_the_offset_index_and_the_largest_so_far(self, written: Written) -> None:
        for base, _ in segments(written):
            expected = [
                (relative, position, max(written.times[base : base + relative + 1]))
                for relative, position in struct.iter_unpack(">ii", (written.log.directory / f"{base:020d}.index").read_bytes())
            ]
            assert list(struct.iter_unpack(">iiq", written.wide.path(base).read_bytes())) == expected

    def test_append_time_index_has_first_last_and_each_minute(self, written: Written) -> None:
        for base, end in segments(written):
            entries = [
                (time, base + offset) for time, offset in struct.iter_unpack(">qi", written.append.path(base).read_bytes())
            ]
            minutes: dict[int, int] = {}
            for offset in range(base, end):
                minutes.setdefault(written.append_ms[offset] // MINUTE_MS, offset)
            assert sorted({*minutes.values(), base, end - 1}) == [offset for _, offset in entries]
            assert all(written.append_ms[offset] == time for time, offset in entries)


class TestStarts:
    def test_largest_times_and_rebuilt_files(self, written: Written, tmp_path: Path) -> None:
        true = [max(written.times[base:end]) for base, end in segments(written)]
        with WalkedLog(written.log.directory) as walked:
            last = walked.segments[-1]
            for reader in (
                TimeIndexReader(walked),
                MinuteMapReader(walked, written.map.folder),
                WideReader(walked, written.wide.folder),
            ):
                assert start_clean(walked, reader).largest == true
            assert rebuild_time_index(last, INTERVAL) == (last.size_bytes, 0, True)
            for fresh, old in (
                (GranularIndex(tmp_path / "minute"), written.minute),
                (MinuteMap(tmp_path / "map"), written.map),
                (WideOffsetIndex(tmp_path / "wide"), written.wide),
            ):
                again = rebuild(last, fresh, old.path(last.base_offset), INTERVAL, now_ms=1)
                assert again.is_identical
                assert again.records_opened == (len(written.times) - last.base_offset if isinstance(fresh, MinuteMap) else 0)
            lost = rebuild(last, AppendTimeIndex(tmp_path / "append"), written.append.path(last.base_offset), INTERVAL, now_ms=1)
            assert not lost.is_identical


def segments(written: Written) -> list[tuple[int, int]]:
    bases = [int(path.stem) for path in sorted(written.log.directory.glob("*.log"))]
    return list(zip(bases, [*bases[1:], len(written.times)], strict=True))


def test_the_map_goes_with_its_segment(tmp_path: Path) -> None:
    deleted: list[int] = []

    def delete(log: PartitionLog) -> None:
        log.delete_records(250)
        log.delete_old_segments()
        deleted.append(log.segments.values()[0].base_offset)

    held = MinuteMap(tmp_path / "map")
    written = write_log(
        tmp_path / "log", [(generate(WORKLOADS["strongly"]), 0)], [held], properties=PROPERTIES, before_close=delete
    )
    assert deleted[0] > 0
    for base in [base for base in held.minutes if base < deleted[0]]:
        held.delete_segment(base)
    times = written.timestamps.tolist()
    with WalkedLog(written.directory) as walked:
        assert [segment.base_offset for segment in walked.segments] == sorted(held.minutes)
        assert len(list(held.folder.iterdir())) == len(walked.segments)
        reader = MinuteMapReader(walked, held.folder)
        assert reader.minutes == [held.minutes[base] for base in sorted(held.minutes)]
        for timestamp in times[::9]:
            found = first_at(times[deleted[0] :], timestamp)
            assert reader.look_up(timestamp).offset == (None if found is None else found + deleted[0])


def test_the_closest_minute_misses_a_message_of_the_future(tmp_path: Path) -> None:
    """m0 says 12:00 at noon, m1 says 13:00 at noon already, m2 says 12:10: who looks for 12:10 has to begin at m1."""
    noon = EPOCH_MS + 12 * HOUR_MS
    create = np.array([noon, noon + HOUR_MS, noon + 10 * MINUTE_MS], np.int64)
    arrival = np.array([noon, noon + 1, noon + 10 * MINUTE_MS], np.int64)
    messages = Messages(np.arange(3, dtype=np.int64), create, create, arrival, 100)
    written = write_log(tmp_path / "log", [(messages, 0)], [MinuteMap(tmp_path / "map")], batch_records=1)
    with WalkedLog(written.directory) as walked:
        timestamp = noon + 10 * MINUTE_MS
        assert MinuteMapReader(walked, tmp_path / "map").look_up(timestamp).offset == 1
        naive = NaiveMinuteMapReader(walked, tmp_path / "map")
        assert naive.look_up(timestamp).offset == 2
        found = look_up_all(naive, written.timestamps, [timestamp, noon])
    check_fields(found, inexact=1, missing=1, missed=1, behind=[0, 0])
    assert "offset 2; offset 1 has 13:00:00.000 already; 1 missed" in found.example


@examples(12)
@given(
    st.lists(st.integers(0, 3 * HOUR_MS), min_size=1, max_size=40),
    st.lists(st.integers(-1, 3 * HOUR_MS + 1), min_size=1, max_size=8),
)
def test_any_times(tmp_path_factory: pytest.TempPathFactory, offsets_ms: list[int], asked: list[int]) -> None:
    folder = tmp_path_factory.mktemp("any")
    create = np.array(offsets_ms, np.int64) + EPOCH_MS
    arrival = EPOCH_MS + np.arange(len(create), dtype=np.int64)
    messages = Messages(np.arange(len(create), dtype=np.int64), create, create, arrival, 100)
    builders: list[EntryFiles] = [MinuteMap(folder / "map"), WideOffsetIndex(folder / "wide")]
    properties = {"segment.bytes": 2_500, "index.interval.bytes": 300}
    written = write_log(folder / "log", [(messages, 0)], builders, properties=properties, batch_records=2)
    with WalkedLog(written.directory) as walked:
        for reader in (TimeIndexReader(walked), MinuteMapReader(walked, folder / "map"), WideReader(walked, folder / "wide")):
            for time in asked:
                assert reader.look_up(EPOCH_MS + time).offset == first_at(create.tolist(), EPOCH_MS + time)


def test_a_written_log_opens_again(tmp_path: Path) -> None:
    written = write_log(tmp_path, [(generate(WORKLOADS["in order"]), 0)], properties=PROPERTIES)
    with LogManager(tmp_path, ManualClock(EPOCH_MS)) as manager:
        assert manager.log(TOPIC, 0).log_end_offset == len(written.timestamps) == 4 * written.batches
