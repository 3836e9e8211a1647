"""Whatever one client says of itself, and is kept, others are answered: in every version of every API that tells them of it.

A string of the protocol has 32,767 bytes at most, which a client may fill: what is made of it must not be longer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.groups.members import CONSUMER, NO_TOPICS, RANGE, Coordinator, Member
from tests.broker.groups.offset_requests import Offset, commit, fetch
from tidelog.broker.apis import describe_groups, list_groups, list_transactions
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest

LONGEST = 32_767
TEXTS = {
    "one byte each": "x" * LONGEST,
    "three bytes each": "\u20ac" * (LONGEST // 3),
    "four bytes each": "\U0001f600" * (LONGEST // 4),
    "a uuid fits behind it": "x" * (LONGEST - 37),
}


@pytest.fixture
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path_factory.mktemp("told") / "data", transaction_state_log_num_partitions=1)
    coordinator.broker.create_topic("events", 1)
    yield coordinator
    coordinator.close()


def check_others_are_answered(coordinator: Coordinator, group_ids: list[str], transactional_ids: list[str]) -> None:
    with coordinator.broker.client() as client:
        for version in range(describe_groups.API.served.first, describe_groups.API.served.last + 1):
            described = client.ask(DescribeGroupsRequest(groups=group_ids), version).groups
            assert [one.error_code for one in described] == [0] * len(group_ids)
        for version in range(list_groups.API.served.first, list_groups.API.served.last + 1):
            assert {one.group_id for one in client.ask(ListGroupsRequest(), version).groups} == set(group_ids)
        for version in range(list_transactions.API.served.first, list_transactions.API.served.last + 1):
            listed = client.ask(ListTransactionsRequest(), version).transaction_states
            assert {one.transactional_id for one in listed} == set(transactional_ids)
        states = client.ask(DescribeTransactionsRequest(transactional_ids), 0).transaction_states
        assert [one.error_code for one in states] == [0] * len(transactional_ids)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_names_of_every_kind(coordinator: Coordinator, text: str) -> None:
    with coordinator.broker.client() as client:
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
        code = client.ask(InitProducerIdRequest(transactional_id=text, transaction_timeout_ms=1000), 4).error_code
        assert code == ErrorCode.NONE
        assert commit(client, text, {("events", 0): Offset(1)}) == {("events", 0): 0}
    (own,) = coordinator.stable(f"own {text}"[:LONGEST] if text.isascii() else "own", protocols={text: b""}, protocol_type=text)
    groups = [text, own.group_id]
    for version in range(10):
        for instance_id in (None, text) if version >= 5 else (None,):
            group_id = f"shared {version} {instance_id is None}"
            groups.append(group_id)
            honest = coordinator.member(group_id, version=version)
            honest.enter()
            assert not honest.joined().error_code
            protocols = RANGE | {text: NO_TOPICS}
            stranger = coordinator.member(
                group_id, client_id=text, instance_id=instance_id, protocols=protocols, version=max(version, 3)
            )
            stranger.enter()
            honest.join()
            assert not honest.joined().error_code
            assert not stranger.joined().error_code
            assert honest.is_leader
            assert stranger.member_id.startswith(text[:200])
            stranger.sync()
            honest.sync({honest.member_id: b"all", stranger.member_id: b""})
            assert honest.synced().assignment == b"all"
            assert not stranger.synced().error_code
    check_others_are_answered(coordinator, groups, [text])
    coordinator.restart()
    check_others_are_answered(coordinator, groups, [text])
    with coordinator.broker.client() as client:
        assert fetch(client, text) == {("events", 0): Offset(1)}


def test_names_that_are_no_utf_8(coordinator: Coordinator) -> None:
    """Each byte of them becomes three: they would be too long for others' answers, so the connection is closed."""
    with coordinator.broker.client() as client:
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    long = "x" * LONGEST
    for version in range(10):
        for client_id, group_id, protocol_type, protocol in (
            (long, "g", CONSUMER, "range"),
            ("c", long, CONSUMER, "range"),
            ("c", "g", long, "range"),
            ("c", "g", CONSUMER, long),
        ):
            request = JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type=protocol_type,
                protocols=[JoinGroupRequestProtocol(protocol, NO_TOPICS)],
            )
            frame = b"".join(request_chunks(request, version, 1, client_id)).replace(b"x" * LONGEST, b"\xff" * LONGEST)
            with coordinator.broker.client() as stranger:
                stranger.send_bytes(frame)
                assert stranger.closed()
    honest: Member = coordinator.stable("honest")[0]
    check_others_are_answered(coordinator, [honest.group_id], [])
