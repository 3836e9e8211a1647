"""Followers of simulated leaders: what ends up in their logs, what they ask for, and what becomes of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.replicas.simulated_leader import LEADER, SimulatedLeader, Simulation, until
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import NOW_MS, batch, messages, offsets, open_log
from tidelog.broker.replicas.fetchers import Followed
from tidelog.broker.replicas.following.followed_partition import FollowerState
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse
from tidelog.wire.messages.list_offsets import ListOffsetsRequest
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

KEY = TopicPartition("orders", 0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 2 * PATIENCE_S))  # type: ignore[arg-type]


@pytest.fixture
def logs(tmp_path: Path) -> Any:
    opened: list[PartitionLog] = []

    def log(name: str, clock: ManualClock | None = None, **properties: Any) -> PartitionLog:
        (tmp_path / name).mkdir()
        opened.append(open_log(tmp_path / name, clock, topic_id=None, **properties))
        return opened[-1]

    yield log
    for one in opened:
        one.close()


def fill(log: PartitionLog, *epochs: int, count: int = 2) -> None:
    """Append a batch in each of these epochs, as their leader."""
    for epoch in epochs:
        log.append_as_leader(batch(count=count), epoch)


def files(log: PartitionLog) -> dict[str, bytes]:
    log.flush()
    return {path.name: path.read_bytes() for path in log.directory.glob("*.log")}


def same(one: PartitionLog, other: PartitionLog) -> bool:
    """Whether both logs have the same batches, with the same leader epochs, and end at the same offset."""
    return one.log_end_offset == other.log_end_offset and content(one) == content(other)


def content(log: PartitionLog) -> bytes:
    return bytes(log.read(log.log_start_offset, 1 << 24).data)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 15, 17])
def test_a_new_replica_gets_all(logs: Any, version: int) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        leader.lead(KEY, first, 3)
        fill(first, 3, 3, 3)
        first.update_high_watermark(4)
        async with Simulation(leader, fetch_version=version) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            # Records, the high watermark and the call of `moved` are steps of their own.
            await until(lambda: second.log_end_offset == 6 and second.high_watermark == 4 and bool(simulation.moved))
            assert simulation.moved == [KEY]
            fill(first, 3)
            first.update_high_watermark(8)
            leader.changed.set()
            await until(lambda: second.high_watermark == 8)
        assert files(first) == files(second)
        assert second.leader_epochs.entries == first.leader_epochs.entries
        assert {asked for _, asked in leader.requests} == {version}

    run(test)


def test_only_what_changed_is_asked_and_a_fetch_says_what_is_kept(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        keys = [TopicPartition("orders", number) for number in range(3)]
        sources = {key: logs(f"l{key.partition}") for key in keys}
        copies = {key: logs(f"f{key.partition}") for key in keys}
        for key in keys:
            leader.lead(key, sources[key], 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(key, copies[key]) for key in keys])
            await until(lambda: len(leader.requests) > 2)
            for number in range(5):
                fill(sources[keys[1]], 0)
                leader.changed.set()
                await until(lambda end=2 * number + 2: leader.led[keys[1]].fetched == end)  # type: ignore[misc]
                assert copies[keys[1]].log_end_offset >= 2 * number + 2, "never before it is in the log"
            simulation.fetchers.leave([keys[0]])
            await until(lambda: any(request.forgotten_topics_data for request, _ in leader.requests))
        first, *others = [request for request, _ in leader.requests]
        assert isinstance(first, FetchRequest) and len(first.topics[0].partitions) == 3 and first.session_epoch == 0
        assert first.replica_state.replica_epoch == 7
        named = [part.partition for request in others for topic in request.topics for part in topic.partitions]  # type: ignore[attr-defined]
        assert set(named) == {1} and len(named) == 5

    run(test)


HISTORIES = [
    # leader, follower, what both have
    ((0, 0, 1, 3), (0, 0, 1), 6),
    ((0, 0, 1, 3), (0, 0, 1, 1, 1), 6),
    ((0, 0, 3, 3), (0, 0, 1, 2), 4),
    ((0, 0, 0, 5), (0, 1, 1, 2, 3, 4), 2),
    ((1, 3), (0, 0, 2), 0),
    ((0, 3), (), 0),
    ((), (0, 1), 0),
]


@pytest.mark.parametrize("version", [11, 12, 17])
@pytest.mark.parametrize(("led", "followed", "common"), HISTORIES)
def test_logs_that_part(logs: Any, led: tuple[int, ...], followed: tuple[int, ...], common: int, version: int) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(first, *led)
        for index, epoch in enumerate(followed):
            # The same epoch at the same place is the same batch; else another one.
            is_same = led[: index + 1] == followed[: index + 1]
            second.append_as_leader(batch(count=2, value=b"value" if is_same else b"other"), epoch)
        second.update_high_watermark(common)
        leader.lead(KEY, first, 7)
        async with Simulation(leader, fetch_version=version) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: leader.led[KEY].fetched == first.log_end_offset and same(first, second))
            fill(first, 7)
            leader.changed.set()
            await until(lambda: same(first, second))
        assert files(first) == files(second)
        assert second.leader_epochs.entries == first.leader_epochs.entries
        asks = [request for request, _ in leader.requests if isinstance(request, OffsetForLeaderEpochRequest)]
        assert bool(asks) == (version < 12 and bool(followed))

    run(test)


def test_a_leader_of_before_epochs_has_the_log_cut_to_the_high_watermark(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(first, 0, 0, 0)
        fill(second, 0, 0, 0, 0)
        second.update_high_watermark(4)
        leader.lead(KEY, first, 0)
        async with Simulation(leader, fetch_version=11, versions={OffsetForLeaderEpochRequest: -1}) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 6)
            asked = next(request for request, _ in leader.requests)
            assert asked.topics[0].partitions[0].fetch_offset == 4  # type: ignore[attr-defined]

    run(test)


def test_messages_without_epochs(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first = logs("first", message_format_version="0.10.2")
        second = logs("second", message_format_version="0.10.2")
        for one, count in ((first, 6), (second, 7)):
            for _ in range(count):
                one.append_as_leader(messages(), 0)
        second.update_high_watermark(5)
        leader.lead(KEY, first, 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: leader.led[KEY].fetched == 6)
            assert same(first, second)

    run(test)


def test_the_leader_begins_after_our_end(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(second, 0, 0)
        fill(first, 0, 0, 0, 0, 0)
        first.update_high_watermark(10)
        first.maybe_increment_log_start_offset(7)
        first.delete_old_segments()
        leader.lead(KEY, first, 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 10)
        assert offsets(second) == [7, 8, 9], "its start lies within a batch"
        assert (second.log_start_offset, second.segments.base_offsets) == (7, [6])

    run(test)


def test_the_leaders_log_start_is_taken_over(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(first, 0, 0)
        leader.lead(KEY, first, 0)
        first.update_high_watermark(4)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.high_watermark == 4)
            first.maybe_increment_log_start_offset(3)
            leader.changed.set()
            await until(lambda: second.log_start_offset == 3)
            await until(
                lambda: any(
                    part.log_start_offset == 3
                    for request, _ in leader.requests
                    for topic in request.topics  # type: ignore[attr-defined]
                    for part in topic.partitions
                )
            )

    run(test)


def test_the_leader_ends_before_our_end_and_within_a_batch_of_ours(logs: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Without epochs at the leader: out of range. Kafka would cut at 3, and then refuse the batch from 2 on."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        second.append_as_follower(bytes(batch(0, count=2)) + bytes(batch(2, count=8)))
        second.update_high_watermark(10)
        first.append_as_follower(bytes(batch(0, count=2)) + bytes(batch(2, count=1)))
        first.leader_epochs.clear_and_flush()
        led = leader.lead(KEY, first, 0)
        first.leader_epochs.clear_and_flush()
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 2)
            first.maybe_assign_epoch_start_offset(0, 0)
            await until(lambda: led.fetched == 3)
        assert same(first, second)
        assert "truncated to 2, below its high watermark 10: the leader has the offsets 0 to 3" in caplog.text

    run(test)


def test_our_end_lies_within_a_batch_of_the_leader(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        first.append_as_follower(bytes(batch(0, count=2)) + bytes(batch(2, count=8)))
        second.append_as_follower(bytes(batch(0, count=2)) + bytes(batch(2, count=1)) + bytes(batch(3, count=1)))
        leader.lead(KEY, first, 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 10)
        assert files(first) == files(second)

    run(test)


def test_what_contradicts_committed_records_is_not_appended(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        first.append_as_follower(bytes(batch(0, count=10)))
        second.append_as_follower(bytes(batch(0, count=2)))
        second.update_high_watermark(2)
        leader.lead(KEY, first, 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: bool(simulation.failed))
            assert "begins below the log end" in simulation.failed[0].failure
            assert second.log_end_offset == 2
            leader.led[KEY].epoch = 1
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            assert not simulation.failed, "it is tried again in the next epoch"

    run(test)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_errors_that_go_by(logs: Any, error: ErrorCode) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        keys = [KEY, TopicPartition("orders", 1)]
        sources = [logs("l0"), logs("l1")]
        copies = [logs("f0"), logs("f1")]
        for key, log in zip(keys, sources, strict=True):
            leader.lead(key, log, 0)
            fill(log, 0)
        leader.led[KEY].errors += [error, error]
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(key, log) for key, log in zip(keys, copies, strict=True)])
            await until(lambda: copies[1].log_end_offset == 2)
            await until(lambda: copies[0].log_end_offset == 2)
            one = simulation.fetchers.partition(KEY)
            assert one is not None and (one.retries, one.lag, one.state) == (0, 0, FollowerState.FETCHING)

    run(test)


def test_a_fenced_epoch_waits_for_the_metadata(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        leader.lead(KEY, first, 5)
        fill(first, 5)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second, 4)])
            await until(lambda: bool(simulation.failed))
            asked = len(leader.requests)
            await asyncio.sleep(0.05)
            assert len(leader.requests) <= asked + 1 and second.log_end_offset == 0
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second, 5)])
            await until(lambda: second.log_end_offset == 2)

    run(test)


def test_corrupt_bytes_are_fetched_again(logs: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        leader.lead(KEY, first, 0)
        fill(first, 0, 0)
        damaged = 2
        read = leader._read_one

        def read_one(*arguments: Any) -> Any:
            nonlocal damaged
            data = read(*arguments)
            if len(data.records) and damaged:
                damaged -= 1
                data.records = data.records[:-1] + bytes([data.records[-1] ^ 1])
            return data

        leader._read_one = read_one  # type: ignore[method-assign]
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 4)
        assert files(first) == files(second) and "sent records that cannot be appended" in caplog.text

    run(test)


def test_a_disk_that_refuses_takes_one_partition(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        other = TopicPartition("orders", 1)
        sources, copies = {KEY: logs("l0"), other: logs("l1")}, {KEY: logs("f0"), other: logs("f1")}
        for key, log in sources.items():
            leader.lead(key, log, 0)
            fill(log, 0)
        copies[KEY].go_offline("append", OSError("no"))
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(key, log) for key, log in copies.items()])
            await until(lambda: copies[other].log_end_offset == 2)
            assert [one.key for one in simulation.failed] == [KEY]
            back = logs("back")  # The disk is there again, and the log another one.
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, back)])
            await until(lambda: back.log_end_offset == 2)
            assert not simulation.failed

    run(test)


def test_lost_requests_and_a_leader_that_starts_again(logs: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.broker")

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        leader.lead(KEY, first, 0)
        fill(first, 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 2)
            simulation.channels[0].losing = 5
            fill(first, 0)
            leader.changed.set()
            await until(lambda: second.log_end_offset == 4)
            # Each reason once, whatever the number of times.
            assert caplog.text.count("lost on the way back") == caplog.text.count("lost on the way (") == 1
            assert "works again" in caplog.text
            leader.sessions = type(leader.sessions)(ManualClock(0), 10)
            fill(first, 0)
            await until(lambda: second.log_end_offset == 6)
            # It comes back at another place.
            simulation.places[LEADER] = ("leader-1", 9999)
            fill(first, 0)
            await until(lambda: second.log_end_offset == 8)
            assert [channel.is_closed for channel in simulation.channels] == [True, False]
            simulation.places.clear()
            await until(lambda: all(channel.is_closed for channel in simulation.channels))

    run(test)


def test_a_move_to_another_leader(logs: Any) -> None:
    async def test() -> None:
        old, new = SimulatedLeader(), SimulatedLeader()
        first, second, copy = logs("old"), logs("new"), logs("copy")
        old.lead(KEY, first, 0)
        fill(first, 0, 0)
        async with Simulation(old, new) as simulation:
            simulation.fetchers.follow(11, [old.followed(KEY, copy)])
            await until(lambda: copy.log_end_offset == 4)
            fill(second, 0)
            new.lead(KEY, second, 1)
            fill(second, 1, 1)
            followed = new.followed(KEY, copy)
            simulation.fetchers.follow(12, [followed])
            simulation.fetchers.follow(12, [followed])
            await until(lambda: same(second, copy) and copy.leader_epochs.latest_epoch == 1)
            await until(lambda: simulation.channels[0].is_closed)
            asked = len(old.requests)
            await asyncio.sleep(0.05)
            assert len(old.requests) == asked
        assert files(second) == files(copy)

    run(test)


def test_what_comes_after_it_was_left_is_not_appended(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        leader.lead(KEY, first, 0)
        async with Simulation(leader, replica_fetch_wait_max_ms=500) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: len(leader.requests) > 0)
            await asyncio.sleep(0.01)
            simulation.fetchers.leave([KEY])
            fill(first, 0)
            leader.changed.set()
            await asyncio.sleep(0.05)
            assert second.log_end_offset == 0 and simulation.fetchers.partition(KEY) is None

    run(test)


def test_a_followers_high_watermark_does_not_go_back(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(first, 0, 0)
        fill(second, 0, 0)
        second.update_high_watermark(4)
        led = leader.lead(KEY, first, 1)
        led.high_watermark = 2  # It was just elected, and has not heard of the last two.
        fill(first, 1)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 6)
            assert second.high_watermark == 4
            led.high_watermark = 6
            leader.changed.set()
            await until(lambda: second.high_watermark == 6)

    run(test)


def test_append_times_go_on_after_a_leader_change(logs: Any) -> None:
    """KIP-32: a follower that becomes the leader never goes back before the times that its leader gave."""

    async def test() -> None:
        leader = SimulatedLeader()
        ahead, late = ManualClock(NOW_MS + 60_000), ManualClock(NOW_MS)
        first = logs("first", ahead, message_timestamp_type="LogAppendTime")
        second = logs("second", late, message_timestamp_type="LogAppendTime")
        leader.lead(KEY, first, 0)
        fill(first, 0)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 2)
            fill(first, 0)
            leader.changed.set()
            await until(lambda: second.log_end_offset == 4)
            simulation.fetchers.leave([KEY])
        assert files(first) == files(second)
        assert second.append_as_leader(batch(), 1).log_append_time == NOW_MS + 60_000
        # Also where it led before, and its own times are older than those that came.
        ahead.advance(5_000)
        first.truncate_to(4)
        fill(first, 2)
        second.truncate_to(4)
        second.append_as_leader(batch(), 1)
        second.truncate_to(4)
        second.append_as_follower(first.read(4, 1000).data, 2)
        assert second.append_as_leader(batch(), 3).log_append_time == NOW_MS + 65_000

    run(test)


def test_a_throttle_holds_what_is_behind_and_lets_pass_what_is_in_sync(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        other = TopicPartition("orders", 1)
        sources = {KEY: logs("l0"), other: logs("l1")}
        copies = {KEY: logs("f0", follower_replication_throttled_replicas="0:2"), other: logs("f1")}
        for key, log in sources.items():
            leader.lead(key, log, 0)
            fill(log, *[0] * 20, count=50)
            log.update_high_watermark(log.log_end_offset)
        async with Simulation(leader, replica_fetch_max_bytes=500) as simulation:
            simulation.throttled_rate = 10
            simulation.fetchers.follow(LEADER, [leader.followed(key, log) for key, log in copies.items()])
            await until(lambda: same(sources[other], copies[other]))
            assert copies[KEY].log_end_offset < 200, "the others pass"
            simulation.throttled_rate = 10**9
            await until(lambda: same(sources[KEY], copies[KEY]))
            await until(lambda: all(not one.lag for one in simulation.fetchers.partitions()))
            simulation.throttled_rate = 1
            fill(sources[KEY], 0)
            leader.changed.set()
            await until(lambda: same(sources[KEY], copies[KEY]))

    run(test)


def test_an_error_for_the_whole_fetch(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        leader.lead(KEY, first, 0)
        fill(first, 0)
        left = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR]
        leader.answer = lambda request: FetchResponse(error_code=left.pop()) if left else None
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 2)
        assert not left

    run(test)


def test_several_connections_to_a_leader(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        keys = [TopicPartition("orders", number) for number in range(4)]
        copies = {key: logs(f"f{key.partition}") for key in keys}
        for key in keys:
            fill(leader.lead(key, logs(f"l{key.partition}"), 0).log, 0)
        async with Simulation(leader, num_replica_fetchers=2) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(key, log) for key, log in copies.items()])
            await until(lambda: all(log.log_end_offset == 2 for log in copies.values()))
            assert len(simulation.channels) == 2
            simulation.fetchers.leave(keys)
            await until(lambda: all(channel.is_closed for channel in simulation.channels))

    run(test)


def test_batches_of_an_epoch_that_is_not_followed_yet_are_left_out(logs: Any) -> None:
    """KAFKA-18723: the leader has lost its epoch since, and its records may go."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        led = leader.lead(KEY, first, 0)
        fill(first, 0, 1)
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 2)
            await asyncio.sleep(0.03)
            assert second.log_end_offset == 2
            led.epoch = 1
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: second.log_end_offset == 4)

    run(test)


def test_the_range_is_asked_once_for_all(logs: Any) -> None:
    async def test() -> None:
        leader = SimulatedLeader()
        followed: list[Followed] = []
        for number in range(5):
            key = TopicPartition("orders", number)
            first = logs(f"l{number}")
            fill(first, 0, 0)
            first.update_high_watermark(4)
            first.maybe_increment_log_start_offset(2)
            leader.lead(key, first, 0)
            followed.append(leader.followed(key, logs(f"f{number}")))
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, followed)
            await until(lambda: all(one.log.log_end_offset == 4 for one in followed))
        asks = [request for request, _ in leader.requests if isinstance(request, ListOffsetsRequest)]
        assert len(asks) == 2 and all(len(request.topics[0].partitions) == 5 for request in asks)

    run(test)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_change_while_the_leader_is_asked_for_its_epochs(logs: Any, is_left: bool) -> None:
    """What the old epoch's leader has answered is of no use in the new one, nor for a partition that was left."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(first, 0, 2)
        fill(second, 0, 1, 1)
        led = leader.lead(KEY, first, 3)
        asked = 0

        def answer(request: Any) -> Any:
            nonlocal asked
            if isinstance(request, OffsetForLeaderEpochRequest):
                asked += 1
                if asked == 1 and is_left:
                    simulation.fetchers.leave([KEY])
                elif asked == 1:
                    led.epoch = 4
                    simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
                    return leader._epoch_ends(OffsetForLeaderEpochRequest(topics=[]))
            return None

        leader.answer = answer
        async with Simulation(leader, fetch_version=11) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            if is_left:
                await until(lambda: asked == 1)
                await asyncio.sleep(0.02)
                assert second.log_end_offset == 6 and asked == 1
            else:
                await until(lambda: same(first, second) and asked > 1)

    run(test)


def test_nothing_is_appended_where_logs_part(logs: Any) -> None:
    """Also if the leader sends records along."""

    async def test() -> None:
        leader = SimulatedLeader()
        first, second = logs("first"), logs("second")
        fill(first, 0, 2)
        fill(second, 0, 1)
        leader.lead(KEY, first, 3)
        read = leader._read_one

        def read_one(*arguments: Any) -> Any:
            data = read(*arguments)
            if data.diverging_epoch.epoch >= 0:
                data.records = bytes(batch(4))
            return data

        leader._read_one = read_one  # type: ignore[method-assign]
        async with Simulation(leader) as simulation:
            simulation.fetchers.follow(LEADER, [leader.followed(KEY, second)])
            await until(lambda: leader.led[KEY].fetched == 4 and same(first, second))

    run(test)
