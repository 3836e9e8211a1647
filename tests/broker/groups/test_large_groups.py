"""Groups of hundreds of members that all say much: no step of theirs keeps the loop for long (`loop_turns`)."""

from __future__ import annotations

import resource
from contextlib import ExitStack
from functools import partial

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.test_widest import LONGEST_S
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBERS = min(300, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
SAID = bytes(100_000)
TIMEOUT_MS = 300_000
NOW_MS = 1_700_000_000_000
DELAY_MS = 100_000
PROPERTIES = {"offsets_topic_num_partitions": 1, "group_initial_rebalance_delay_ms": DELAY_MS}


def test_no_step_of_a_large_group_keeps_the_loop_for_long(start_broker: StartBroker) -> None:
    """The last step, an assignment of 30 MB, is more than the topic of groups takes: everybody is reported."""
    clock = ManualClock(NOW_MS)
    joined_and_assigned(start_broker(clock=clock, **PROPERTIES), clock, ErrorCode.UNKNOWN_SERVER_ERROR, LONGEST_S)


def test_a_group_of_60_mb_is_written_and_loaded(start_broker: StartBroker) -> None:
    """It is one record, much larger than `offsets.load.buffer.size`, which only happens if somebody has raised
    `message.max.bytes`. It is built elsewhere, and the loop only appends it; the load is in steps.
    """
    clock = ManualClock(NOW_MS)
    broker = start_broker(clock=clock, **PROPERTIES, message_max_bytes=100_000_000)
    joined_and_assigned(broker, clock, ErrorCode.NONE, longest_s=10 * LONGEST_S)
    groups, written = broker.node.groups, list[ErrorCode]()
    group = groups.get("g")
    assert group is not None
    end_offset = broker.on_loop(lambda: groups.log.end_offset(0))
    for is_wanted in (lambda: False, lambda: True):  # What a later generation has overtaken is not written after it.
        broker.on_loop(partial(groups.store_aside, group, is_wanted, written.append))
    wait_until(lambda: written == [ErrorCode.NONE], "the record to be written", PATIENCE_S)
    assert broker.on_loop(lambda: groups.log.end_offset(0)) == end_offset + 1
    broker.stop()
    broker.start()
    with broker.client() as client, LoopTurns(broker) as turns:
        found: list[DescribedGroup] = []

        def is_loaded() -> bool:
            found[:] = client.ask(DescribeGroupsRequest(groups=["g"]), 1).groups
            return found[0].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        wait_until(is_loaded, "the group to be loaded", PATIENCE_S)
        assert (found[0].error_code, found[0].group_state) == (ErrorCode.NONE, "Stable")
        assert [(one.member_metadata, one.member_assignment) for one in found[0].members] == [(SAID, SAID)] * MEMBERS
        assert turns.longest.seconds < 4 * LONGEST_S, turns.turns


def are_members(broker: RunningBroker) -> bool:
    group = broker.node.groups.get("g")
    return group is not None and len(group.members) == MEMBERS


def joined_and_assigned(broker: RunningBroker, clock: ManualClock, expected: int, longest_s: float) -> None:
    """All members join within the group's first delay, each gets an assignment, and all get `expected`."""
    with ExitStack() as stack:
        stack.enter_context(broker.client()).ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        clients = [stack.enter_context(broker.client()) for _ in range(MEMBERS)]
        turns = stack.enter_context(LoopTurns(broker))
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SAID)],
        )
        for client in clients:
            client.send(join, 3)
        wait_until(lambda: broker.on_loop(lambda: are_members(broker)), "all members", PATIENCE_S)
        for _ in range(2):  # The first delay is followed by another one, where members have come in it.
            clock.advance(DELAY_MS)
            broker.on_loop(broker.running.tick)
        joined = [client.receive() for client in clients]
        assert {one.error_code for one in joined} == {ErrorCode.NONE}
        leader = next(one for one in joined if one.leader == one.member_id)
        assert [one.metadata for one in leader.members] == [SAID] * MEMBERS
        assert turns.longest.seconds < LONGEST_S, turns.turns

        def sync(member_id: str) -> SyncGroupRequest:
            return SyncGroupRequest(group_id="g", generation_id=leader.generation_id, member_id=member_id)

        for client, one in zip(clients, joined, strict=True):
            if one is not leader:
                client.send(sync(one.member_id), 2)
        assigned = sync(leader.member_id)
        assigned.assignments = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=SAID) for one in leader.members]
        clients[joined.index(leader)].send(assigned, 2)
        assert {client.receive().error_code for client in clients} == {expected}
        assert turns.longest.seconds < longest_s, turns.turns
