"""Runs messages through the real engine: appends on arrival, retention by the broker's clock, and each message's deletion.

It uses one topic with one partition in a `LogManager`, with a `ManualClock` that shows the true time plus the broker's error. The
manager does its normal background work: `tick` runs at each check, and whenever the broker's clock is set. Deletions are observed
from outside: when the log start moves, the messages below it are deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from studies.policies.scenarios import CHECK_MS, END_MS, RETENTION_MS, RIGHT, SEGMENT_MS, ClockError
from studies.workload import EPOCH_MS, Int64s, Messages, build_batch
from tidelog.clock import ManualClock
from tidelog.config import CREATE_TIME, INT64_MAX, LOG_APPEND_TIME, PropertyValue
from tidelog.errors import InvalidTimestampError
from tidelog.reader.log import Log
from tidelog.records.batch import iter_headers
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.retention_forecast import forecast
from tidelog.storage.scheduler import ScheduledTask, Scheduler, Task

TYPES = (CREATE_TIME, LOG_APPEND_TIME)
TOPIC = "t"
NEVER = 2**62
"""Stands for the time (ms) of an event that did not happen."""

_OFF = {
    "log.flush.offset.checkpoint.interval.ms": INT64_MAX // 4,
    "log.flush.start.offset.checkpoint.interval.ms": INT64_MAX // 4,
    "replica.high.watermark.checkpoint.interval.ms": INT64_MAX // 4,
    "log.cleaner.enable": False,
    "tidelog.time.map.enable": False,
}
"""Background tasks that do not affect the measurements."""

NO_EPOCH = -1
"""Append without a leader epoch. Otherwise each move of the log start would write the epoch file, which would be most of the
work.
"""

_CHECKED = {"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": CHECK_MS}


OLD_FORMAT = {"message.format.version": "0.9.0"}


@dataclass(eq=False)
class Kept:
    """The fate of a scenario's messages on one cluster. Arrays are by offset; refused messages have no entry."""

    messages: Messages
    """The appended messages."""
    stamps_ms: Int64s
    """Their timestamps in the log."""
    clock_ms: Int64s
    """The broker's clock when they arrived."""
    gone_ms: Int64s
    """The true time when retention deleted them, `NEVER` if it did not before the end."""
    starts: Int64s
    """The base offsets of the segments."""
    refused: Int64s
    """Numbers of the messages that the timestamp check refused."""
    checks: list[tuple[int, int]]
    """The true time (ms) of each check, and the bytes left after it."""
    rolled_by_time: int = 0
    one_batch_segments: int = 0
    goes_ms: int | None = None
    """The engine's forecast, by the broker's clock: when the first segment left at the end will be deleted."""
    keeper_ms: int | None = None
    """The timestamp because of which that segment is kept."""


class _UnforcedScheduler(Scheduler):
    """The manager's scheduler without the tasks that flush to disk, because a run needs no protection against power failures."""

    def schedule(
        self, name: str, task: Task, *, delay_ms: int = 0, period_ms: int | None = None, ahead: Task | None = None
    ) -> ScheduledTask:
        if name in _FORCING:
            return ScheduledTask(name, task, 0, None)
        return super().schedule(name, task, delay_ms=delay_ms, period_ms=period_ms, ahead=ahead)


_FORCING = ("flush-log",)


def _manager(folder: Path, clock: ManualClock, properties: Mapping[str, PropertyValue] | None = None) -> LogManager:
    return LogManager(folder, clock, properties={**_OFF, **(properties or {})}, scheduler=_UnforcedScheduler(clock))


@dataclass
class _Seen:
    """The records of a running broker."""

    accepted: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    clock: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    checks: list[tuple[int, int]] = field(default_factory=list)


def run(
    folder: Path,
    messages: Messages,
    timestamp_type: str,
    *,
    clock_error: ClockError = RIGHT,
    retention_ms: int = RETENTION_MS,
    segment_ms: int = SEGMENT_MS,
    until_ms: int = END_MS,
    old_format_until_ms: int = 0,
    properties: Mapping[str, PropertyValue] | None = None,
) -> Kept:
    """Append the messages to a broker, apply its retention until `until_ms`, and return the messages' fate.

    Until `old_format_until_ms` (true time) the topic has format 0.9.0, whose messages have no timestamps. Files then get the
    broker's time, as on a machine with the broker's clock.
    """
    clock = ManualClock(EPOCH_MS + clock_error.at(EPOCH_MS))
    seen = _Seen()
    topic: dict[str, PropertyValue] = {
        "retention.ms": retention_ms,
        "segment.ms": segment_ms,
        "message.timestamp.type": timestamp_type,
        **(properties or {}),
    }
    is_old = old_format_until_ms > EPOCH_MS
    with _quiet(), _manager(folder, clock, _CHECKED) as manager:
        manager.create_topic(TOPIC, 1, {**topic, **OLD_FORMAT} if is_old else topic)
        log = manager.log(TOPIC, 0)
        for truth_ms, index in _events(messages, clock_error, until_ms, is_checked=retention_ms >= 0):
            if is_old and truth_ms >= old_format_until_ms:
                manager.alter_config(TOPIC, topic)
                is_old = False
            if index is None:
                _check(manager, log, clock, clock_error, truth_ms, seen)
                continue
            clock.advance(truth_ms + clock_error.at(truth_ms) - clock.now_ms())
            _append(log, messages, index, clock.now_ms(), seen)
            if old_format_until_ms:
                set_file_time(log, clock.now_ms())
        statistics = manager.statistics()[TOPIC]
        config = log.config
        log.local.mark_flushed(log.log_end_offset)
    kept = Kept(
        _chosen(messages, seen.accepted),
        np.array(seen.stamps, np.int64),
        np.array(seen.clock, np.int64),
        np.array(seen.gone + [NEVER] * (len(seen.accepted) - len(seen.gone)), np.int64),
        np.array(seen.starts, np.int64),
        np.array(seen.refused, np.int64),
        seen.checks,
        statistics.rolled_by_time,
        statistics.one_batch_segments,
    )
    if len(seen.gone) < len(seen.accepted):
        with Log.open(folder / f"{TOPIC}-0") as closed:
            first = forecast(closed, config, clock.now_ms())[0]
        kept.goes_ms = first.goes_ms
        kept.keeper_ms = None if first.keeper is None else first.keeper.timestamp
    return kept


def _events(messages: Messages, clock_error: ClockError, until_ms: int, *, is_checked: bool) -> Iterator[tuple[int, int | None]]:
    """Yield the events in order of true time (ms): the index of an arriving message, or None for a check."""
    checks = set(range(EPOCH_MS + CHECK_MS, until_ms + 1, CHECK_MS)) if is_checked else set()
    checks |= {one for one in (clock_error.first_ms, clock_error.last_ms) if EPOCH_MS < one < until_ms}
    due = iter(sorted(checks))
    check = next(due, None)
    for index, arrival_ms in enumerate(messages.arrival_ms.tolist()):
        while check is not None and check <= arrival_ms:
            yield check, None
            check = next(due, None)
        if arrival_ms <= until_ms:
            yield arrival_ms, index
    while check is not None:
        yield check, None
        check = next(due, None)


def _check(
    manager: LogManager, log: PartitionLog, clock: ManualClock, clock_error: ClockError, truth_ms: int, seen: _Seen
) -> None:
    # Advance the time first, then set the clock: otherwise a step backward would cancel the advance.
    before_ms = truth_ms + clock_error.at(truth_ms - 1)
    clock.advance(before_ms - clock.now_ms())
    manager.tick()
    if clock_error.at(truth_ms) != clock_error.at(truth_ms - 1):
        clock.advance(clock_error.at(truth_ms) - clock_error.at(truth_ms - 1))
        manager.tick()
    seen.gone += [truth_ms] * (log.log_start_offset - len(seen.gone))
    seen.checks.append((truth_ms, log.size_bytes))


def _append(log: PartitionLog, messages: Messages, index: int, now_ms: int, seen: _Seen) -> None:
    try:
        info = log.append_as_leader(build_batch(messages.part(index, index + 1)), NO_EPOCH)
    except InvalidTimestampError:
        seen.refused.append(int(messages.numbers[index]))
        return
    log.update_high_watermark(log.log_end_offset)
    if log.segments.active.base_offset == info.first_offset:
        seen.starts.append(info.first_offset)
    seen.accepted.append(index)
    seen.stamps.append(info.max_timestamp)
    seen.clock.append(now_ms)


def set_file_time(log: PartitionLog, now_ms: int) -> None:
    """Set the active segment's file time to the broker's time (ms) instead of the machine's."""
    os.utime(log.segments.active.log.path, ns=(now_ms * 1_000_000,) * 2)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the engine's warnings about wrong clocks: the study causes them on purpose."""
    logger = logging.getLogger("tidelog.storage")
    logger.addFilter(_nothing)
    try:
        yield
    finally:
        logger.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


def _chosen(messages: Messages, indices: list[int]) -> Messages:
    some = np.array(indices, np.int64)
    return Messages(
        messages.numbers[some], messages.made_ms[some], messages.create_ms[some], messages.arrival_ms[some], messages.value_bytes
    )


def copy_starts(folder: Path, copy: Path, now_ms: int) -> Int64s:
    """Let another broker fetch everything at once from the broker of `folder`; return the base offsets of its segments."""
    clock = ManualClock(now_ms)
    with _manager(folder, clock) as leader, _manager(copy, clock) as follower:
        return fetch_all(leader, follower, now_ms)


def fetch_all(leader: LogManager, follower: LogManager, now_ms: int) -> Int64s:
    """Let `follower` append the leader's batches; return the base offsets of its segments.

    Each message is a separate batch, as it was appended. A follower rolls its segments by the same rule.
    """
    starts: list[int] = []
    follower.create_topic(TOPIC, 1, leader.topics()[TOPIC].properties)
    source, target = leader.log(TOPIC, 0), follower.log(TOPIC, 0)
    offset = source.log_start_offset
    if offset:
        target.truncate_fully_and_start_at(offset)
    while offset < source.log_end_offset:
        data = source.read(offset, 1, FetchIsolation.LOG_END).data
        for header in iter_headers(data):
            target.append_as_follower(data[header.position : header.end_position])
            if target.segments.active.base_offset == header.base_offset:
                starts.append(header.base_offset)
            offset = header.next_offset
        set_file_time(target, now_ms)
    target.update_high_watermark(target.log_end_offset)
    target.local.mark_flushed(target.log_end_offset)
    return np.array(starts, np.int64)


def keep_copy(folder: Path, copy: Path, now_ms: int, *, until_ms: int = END_MS) -> tuple[Int64s, list[tuple[int, int]]]:
    """Move the partition of `folder` to another broker at `now_ms`, which then applies retention alone.

    Return its segments' base offsets, and the time of each check with the log start after it.
    """
    clock = ManualClock(now_ms)
    seen: list[tuple[int, int]] = []
    with _manager(folder, clock) as leader, _manager(copy, clock, _CHECKED) as follower:
        starts = fetch_all(leader, follower, now_ms)
        log = follower.log(TOPIC, 0)
        for check_ms in range(now_ms + CHECK_MS, until_ms + 1, CHECK_MS):
            clock.advance(CHECK_MS)
            follower.tick()
            seen.append((check_ms, log.log_start_offset))
    return starts, seen
