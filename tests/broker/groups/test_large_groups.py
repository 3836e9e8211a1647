"""Groups of hundreds of members that all say much: no step of theirs keeps the loop for long (`loop_turns`)."""

from __future__ import annotations

import resource
from contextlib import ExitStack

from tests.broker.conftest import StartBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.test_widest import LONGEST_S
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBERS = min(300, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
SAID = bytes(100_000)
TIMEOUT_MS = 300_000


def test_no_step_of_a_large_group_keeps_the_loop_for_long(start_broker: StartBroker) -> None:
    """The last step, an assignment of 30 MB, is more than the topic of groups takes: everybody is reported."""
    broker = start_broker(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=1500)
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
        assert {client.receive().error_code for client in clients} == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert turns.longest.seconds < LONGEST_S, turns.turns
