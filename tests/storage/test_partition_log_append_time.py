"""LogAppendTime: the later of now and the last append (KIP-32), and what "the last append" is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, batch, config, headers, messages, open_log, records
from tidelog.clock import ManualClock
from tidelog.errors import RecordValidationError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.partition.partition_log import PartitionLog

YEAR_MS = 365 * 86_400_000
APPEND_TIME = "LogAppendTime"


def append(log: PartitionLog, timestamp: int = 5) -> int:
    return log.append_as_leader(batch(timestamp=timestamp), 0).log_append_time


def stamped(offset: int, append_time: int) -> bytearray:
    record = Record(offset, 5, CREATE_TIME, b"k", b"v")
    return build_batch_v2([record], timestamp_type=LOG_APPEND_TIME, append_time=append_time, leader_epoch=0)


def test_the_clock_is_taken(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME)
    info = log.append_as_leader(batch(timestamp=5), 0)
    assert (info.log_append_time, info.max_timestamp) == (NOW_MS, NOW_MS)
    clock.advance(10)
    assert append(log) == NOW_MS + 10
    assert [record.timestamp for record in records(log)] == [NOW_MS, NOW_MS + 10]
    assert {header.timestamp_type for header in headers(log)} == {LOG_APPEND_TIME}
    assert {header.base_timestamp for header in headers(log)} == {5}


def test_it_never_goes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME)
    append(log)
    with caplog.at_level(logging.WARNING):
        clock.advance(-60_000)
        assert append(log) == NOW_MS
        assert "clock" not in caplog.text  # a minute is nothing to write home about
        clock.advance(-1)
        assert [append(log), append(log)] == [NOW_MS, NOW_MS]
        assert caplog.text.count("behind the last append") == 1
        clock.advance(70_000)
        assert append(log) == NOW_MS + 9999
        clock.advance(-80_000)
        assert append(log) == NOW_MS + 9999
        assert caplog.text.count("behind the last append") == 2  # it had caught up between


def test_kafkas_plain_clock(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME, tidelog_log_append_time_monotonic=False)
    append(log)
    clock.advance(-5000)
    assert append(log) == NOW_MS - 5000
    # Switched on again: the last append counts, not the latest.
    log.update_config(config(message_timestamp_type=APPEND_TIME))
    clock.advance(-10)
    assert append(log) == NOW_MS - 5000


def test_create_time_has_none(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert append(log) == -1
    assert records(log)[0].timestamp == 5


@pytest.mark.parametrize("clean", [True, False])
def test_it_is_read_from_the_log_after_a_restart(clean: bool, tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME)
    append(log)
    log.roll()
    if clean:
        log.close()
    else:
        log.close_handlers()
    clock.advance(-YEAR_MS)
    log = open_log(tmp_path, clock, clean=clean, message_timestamp_type=APPEND_TIME)
    assert append(log) == NOW_MS


def test_a_future_create_time_before_a_switch_freezes_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME)
    append(log)
    log.update_config(config())
    append(log, NOW_MS + YEAR_MS)
    log.update_config(config(message_timestamp_type=APPEND_TIME))
    clock.advance(7)
    assert append(log) == NOW_MS + 7
    log.roll()
    log.update_config(config())
    append(log, NOW_MS + YEAR_MS)
    log.close()
    clock.advance(-100)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME)
    assert append(log) == NOW_MS + 7  # the last one that the log itself stamped, two segments back


def test_without_any_append_time_now_is_taken(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock)
    for later_ms in (YEAR_MS, 0):
        append(log, NOW_MS + later_ms)
        log.roll()
    log.append_as_leader(messages(), 0)
    log.update_config(config(message_timestamp_type=APPEND_TIME))
    assert append(log) == NOW_MS


def test_a_refused_append_does_not_count(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME, cleanup_policy="compact")
    clock.advance(1000)
    with pytest.raises(RecordValidationError):
        log.append_as_leader(batch(key=None), 0)
    clock.advance(-500)
    assert append(log) == NOW_MS + 500


def test_nothing_is_read_where_no_segment_reaches_past_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path, clock, segment_bytes=3 * len(batch()))
    for _ in range(30):
        append(log, NOW_MS)
    log.update_config(config(message_timestamp_type=APPEND_TIME))
    for segment in log.segments.values()[:-1]:
        monkeypatch.setattr(segment, "batches", None)
        monkeypatch.setattr(segment, "batches_from", None)
    assert append(log) == NOW_MS


class TestFollower:
    def test_what_a_leader_stamped_raises_it(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        log = open_log(tmp_path, clock, message_timestamp_type=APPEND_TIME)
        append(log)
        log.append_as_follower(stamped(1, NOW_MS + 5000))
        log.append_as_follower(stamped(2, NOW_MS + 3000))
        assert [record.timestamp for record in records(log)] == [NOW_MS, NOW_MS + 5000, NOW_MS + 3000]  # as they came
        assert append(log) == NOW_MS + 5000

    def test_producers_times_do_not(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_timestamp_type=APPEND_TIME)
        append(log)
        log.append_as_follower(batch(1, NOW_MS + YEAR_MS))
        assert append(log) == NOW_MS

    def test_before_the_first_append_as_leader(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_timestamp_type=APPEND_TIME)
        log.append_as_follower(stamped(0, NOW_MS + 5000))
        assert append(log) == NOW_MS + 5000

    def test_what_is_cut_off_does_not_count_any_more(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, message_timestamp_type=APPEND_TIME)
        append(log)
        log.append_as_follower(stamped(1, NOW_MS + YEAR_MS))
        log.truncate_to(1)
        assert append(log) == NOW_MS
        log.append_as_follower(stamped(2, NOW_MS + YEAR_MS))
        log.truncate_fully_and_start_at(2)
        assert append(log) == NOW_MS


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.just(0)),
        st.tuples(st.just("create"), st.integers(-200_000, 200_000)),
        st.tuples(st.just("clock"), st.integers(-150_000, 150_000)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("reopen"), st.integers(0, 1)),
    ),
    max_size=12,
)


@given(STEPS)
@examples(60)
def test_append_times_follow_each_other(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    """Over switches of type, moves of the clock, rolls and restarts of both kinds: each is the later of now and the last."""
    clock = ManualClock(NOW_MS)
    directory = tmp_path_factory.mktemp("times")
    log = open_log(directory, clock)
    last = 0
    for step, value in steps:
        if step == "append":
            log.update_config(config(message_timestamp_type=APPEND_TIME))
            last = max(last, clock.now_ms())
            assert append(log) == last
        elif step == "create":
            log.update_config(config())
            append(log, NOW_MS + value)
        elif step == "clock":
            clock.advance(value)
        elif step == "roll":
            log.roll()
        else:
            log.close() if value else log.close_handlers()
            log = open_log(directory, clock, clean=bool(value))
    log.close_handlers()
