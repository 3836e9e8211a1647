"""What groups have committed is removed some at a time: of tens of thousands of offsets no step keeps the loop for long.

What happens to a group between two steps counts as after its removal.
"""

from __future__ import annotations

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.groups.offset_requests import Offset, commit, delete_groups, fetch, loaded
from tests.broker.loop_turns import LoopTurns
from tests.broker.test_widest import LONGEST_S
from tests.broker.works import done
from tests.kafka.java import wait_until
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.state_log import TOMBSTONES_AT_ONCE
from tidelog.clock import ManualClock
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

NOW_MS = 1_373_450_400_000
DAY_MS = 24 * 3600 * 1000
MANY = 10_000
PRODUCERS = 1_000
FEW = TOMBSTONES_AT_ONCE + 2


def group_of(broker: RunningBroker, name: str) -> Group:
    group = broker.node.groups.get(name)
    assert group is not None
    return group


def know_many(broker: RunningBroker, group: Group) -> None:
    """Have a group know many offsets, and some of many producers' open transactions."""

    def put() -> None:
        for number in range(1, MANY):
            group.offsets.put(TopicPartition("events", number), CommittedOffset(7, -1, "", NOW_MS))
        for producer_id in range(PRODUCERS):
            group.offsets.put_pending(producer_id, TopicPartition("events", producer_id), CommittedOffset(8, -1, "", NOW_MS))

    broker.on_loop(put)


@pytest.mark.parametrize("what", ["group", "expiry", "topic"])
def test_no_step_keeps_the_loop_for_long(start_broker: StartBroker, what: str) -> None:
    clock = ManualClock(NOW_MS)
    broker = start_broker(clock=clock, offsets_topic_num_partitions=1)
    broker.create_topic("events", 1)
    with broker.client() as client:
        commit(client, "large", {("events", 0): Offset(1)})
        group = group_of(broker, "large")
        know_many(broker, group)
        pending = {TopicPartition("events", number) for number in range(PRODUCERS)}
        with LoopTurns(broker) as turns:
            if what == "group":
                assert delete_groups(client, "large") == {"large": 0}
            elif what == "expiry":
                clock.advance(8 * DAY_MS)
                broker.on_loop(broker.node.groups.expire)
                wait_until(
                    lambda: broker.on_loop(lambda: set(group.offsets.partitions())) == pending,
                    "all to expire but what is pending",
                )
            else:
                client.ask(DeleteTopicsRequest([DeleteTopicState("events")], timeout_ms=60_000), 6)
                wait_until(lambda: group.offsets.is_empty, "nothing to be known of a topic that is gone")
        assert turns.longest.seconds < LONGEST_S, turns.turns


@pytest.mark.parametrize("of_group", [True, False], ids=["group", "offsets"])
def test_what_is_committed_meanwhile_stays(start_broker: StartBroker, of_group: bool) -> None:
    broker = start_broker(offsets_topic_num_partitions=1)
    broker.create_topic("events", FEW)
    old = {("events", number): Offset(1) for number in range(FEW)}
    new = {("events", FEW - 1): Offset(2)}
    groups = broker.node.groups
    with broker.client() as client:
        commit(client, "group", old)
        group = group_of(broker, "group")
        keys = [TopicPartition(*key) for key in old]
        removal = broker.on_loop(lambda: groups.remove(group) if of_group else groups.remove_offsets(group, keys))
        broker.on_loop(lambda: next(removal))
        assert len(list(group.offsets.partitions())) == FEW - TOMBSTONES_AT_ONCE
        assert commit(client, "group", new) == dict.fromkeys(new, 0)
        assert broker.on_loop(lambda: done(removal)) is ErrorCode.NONE
        assert fetch(client, "group") == new
    broker.stop()
    broker.start()
    loaded(broker)
    with broker.client() as client:
        assert fetch(client, "group") == new


def test_a_group_that_is_removed_twice(start_broker: StartBroker) -> None:
    """Two clients at the same time; the one that comes later finds nothing left, and that is no error."""
    broker = start_broker(offsets_topic_num_partitions=1)
    broker.create_topic("events", FEW)
    with broker.client() as client:
        commit(client, "group", {("events", number): Offset(1) for number in range(FEW)})
        group = group_of(broker, "group")
        removal = broker.on_loop(lambda: broker.node.groups.remove(group))
        broker.on_loop(lambda: next(removal))
        assert delete_groups(client, "group") == {"group": 0}
        assert broker.on_loop(lambda: done(removal)) is ErrorCode.NONE
        assert delete_groups(client, "group") == {"group": ErrorCode.GROUP_ID_NOT_FOUND}


def test_a_group_with_a_long_id(start_broker: StartBroker) -> None:
    """Its id is in each record: they do not fit into one batch."""
    broker = start_broker(offsets_topic_num_partitions=1)
    broker.create_topic("events", 100)
    name = "g" * 20_000
    with broker.client() as client:
        for first in range(0, 100, 10):
            committed = commit(client, name, {("events", number): Offset(1) for number in range(first, first + 10)})
            assert set(committed.values()) == {0}
        assert delete_groups(client, name) == {name: 0}
        assert fetch(client, name) == {}
