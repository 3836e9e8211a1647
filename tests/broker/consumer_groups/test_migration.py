"""Classic members and members of the new protocol in one group, and groups that change from one protocol to the other.

`tests/interop/test_consumer_groups.py` compares random histories of such groups with Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.consumer_groups.test_consumer_coordinating import ON, Consumer
from tests.broker.groups.members import Coordinator, Member, assign
from tidelog.broker.coordinators.groups.group import GroupState
from tidelog.errors import InvalidArgumentError
from tidelog.wire.coordinator.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
)
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.leave_group import MemberIdentity

CLASSIC_MS = 10_000
"""The session timeout of classic members; that of the others is 45 seconds."""
REBALANCE_MS = 60_000


def metadata(*topics: str, owned: list[int] | None = None) -> bytes:
    partitions = [AssignedTopic("t", owned)] if owned else []
    return encode_versioned(ConsumerProtocolSubscription(list(topics), None, partitions), 1)


class Classic(Member):
    """A classic member of group with topics `t`, which owns what it says."""

    def go_in(self, owned: list[int] | None = None) -> list[int]:
        """Join a consumer group, and return the partitions."""
        self.enter_with(owned)
        assert not self.joined().error_code
        return self.assigned()

    def enter_with(self, owned: list[int] | None = None) -> None:
        self.protocols = {"range": metadata("t", owned=owned)}
        self.enter()

    def assigned(self) -> list[int]:
        """Return what a SyncGroup says."""
        self.sync()
        answer = self.synced()
        assert not answer.error_code, answer
        return sorted(partition for one in read_assignment(answer.assignment).assigned_partitions for partition in one.partitions)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    coordinator = Coordinator(
        tmp_path_factory.mktemp("migration") / "data", **ON, group_consumer_migration_policy="bidirectional"
    )
    coordinator.broker.create_topic("t", 4)
    yield coordinator
    coordinator.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def classic(coordinator: Coordinator, group_id: str, **options: Any) -> Classic:
    member = Classic(coordinator.broker.address, group_id, settle=coordinator.settle, session_timeout_ms=CLASSIC_MS, **options)
    coordinator.members.append(member)
    return member


def classic_group(coordinator: Coordinator, group_id: str) -> list[Classic]:
    """Return two members of a stable classic group, which have two partitions each."""
    one, two = classic(coordinator, group_id), classic(coordinator, group_id)
    one.enter_with()
    assert not one.joined().error_code
    two.enter_with()
    one.join()
    for member in (one, two):
        assert not member.joined().error_code
    shares = {one.member_id: [0, 1], two.member_id: [2, 3]}
    given = {key: encode_versioned(ConsumerProtocolAssignment([AssignedTopic("t", some)]), 1) for key, some in shares.items()}
    leader, other = (one, two) if one.is_leader else (two, one)
    other.sync()
    leader.sync(given)
    for member in (leader, other):
        assert not member.synced().error_code
    return [one, two]


def test_a_classic_member_joins_a_consumer_group(coordinator: Coordinator, name: str) -> None:
    new = Consumer(coordinator, name, "t").beat()
    old = classic(coordinator, name)
    assert old.go_in() == []
    assert (old.generation_id, old.leader_id, old.protocol_name) == (2, "", "range")
    assert old.heartbeat() == 0, "the other one has not released anything"
    new.beat().beat()
    assert new.has == [0, 1] and old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.go_in() == [2, 3]
    assert {(one.member_type, one.member_epoch) for one in new.described().members} == {(0, 2), (1, 2)}
    assert new.described().group_state == "Stable"
    assert old.leave().members[0].error_code == 0
    assert new.beat().has == [0, 1, 2, 3]


def test_a_classic_group_becomes_a_consumer_group_and_back(coordinator: Coordinator, name: str) -> None:
    one, two = classic_group(coordinator, name)
    new = Consumer(coordinator, name, "t").beat()
    assert coordinator.state(name) is GroupState.EMPTY
    assert new.has == [] and new.described().group_epoch == one.generation_id + 1
    for member, owned in ((one, [0, 1]), (two, [2, 3])):
        assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        kept = member.go_in(owned)
        if kept != owned:  # As a cooperative client: it revokes, then joins again.
            assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            assert member.go_in(kept) == kept
    assert len(new.beat().has) == 1
    coordinator.restart()
    new.connect()
    for member in (one, two):
        member.client.close()
        member.client = coordinator.member(name).client
        assert member.heartbeat() == 0, "they are in the log"
    assert new.ask(member_epoch=-1).member_epoch == -1
    assert coordinator.state(name) is GroupState.PREPARING_REBALANCE
    for member in (one, two):
        member.enter_with()
    for member in (one, two):
        assert not member.joined().error_code
    assign([one, two])
    assert coordinator.state(name) is GroupState.STABLE
    coordinator.restart()
    assert coordinator.state(name) is GroupState.STABLE and coordinator.group(name).consumer is None


def test_pending_joins_end_with_an_upgrade(coordinator: Coordinator, name: str) -> None:
    one, two = classic_group(coordinator, name)
    one.join(protocols={"range": metadata("t", "u")})
    Consumer(coordinator, name, "t").beat()
    assert one.joined().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert two.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_silent_classic_member_is_removed(coordinator: Coordinator, name: str, is_synced: bool) -> None:
    """Its own session timeout counts; heartbeats do not help one that neither joins again nor asks for its assignment."""
    new = Consumer(coordinator, name, "t").beat()
    old = classic(coordinator, name)
    old.enter_with()
    assert not old.joined().error_code
    if is_synced:
        old.assigned()
        assert new.beat(subscribed_topic_names=["t", "t.other"]).epoch == 1
    for _ in range(REBALANCE_MS // CLASSIC_MS + 1):
        code = old.heartbeat()
        new.beat()
        coordinator.pass_time(CLASSIC_MS - 1)
    assert code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert new.beat().has == [0, 1, 2, 3]


def test_sessions_have_the_classic_timeout(coordinator: Coordinator, name: str) -> None:
    new = Consumer(coordinator, name, "t").beat()
    old = classic(coordinator, name)
    old.go_in()
    coordinator.pass_time(CLASSIC_MS)
    assert old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert new.beat().has == [0, 1, 2, 3]


def test_the_last_new_member_times_out(coordinator: Coordinator, name: str) -> None:
    new = Consumer(coordinator, name, "t").beat()
    old = classic(coordinator, name)
    old.go_in()
    for _ in range(5):
        coordinator.pass_time(CLASSIC_MS - 1)
        old.heartbeat()
    assert coordinator.group(name).consumer is None and new.code() == ErrorCode.GROUP_ID_NOT_FOUND
    old.enter_with()
    assert not old.joined().error_code


def test_the_last_new_member_does_not_revoke(coordinator: Coordinator, name: str) -> None:
    new = Consumer(coordinator, name, "t").beat()
    old = classic(coordinator, name)
    old.go_in()
    everything = new.owned
    for _ in range(8):  # Its rebalance timeout is a minute, and heartbeats keep its session.
        new.code(topic_partitions=everything)
        old.heartbeat()
        coordinator.pass_time(CLASSIC_MS - 1)
    assert coordinator.group(name).consumer is None
    assert list(coordinator.group(name).members) == [old.member_id]


def test_requests_are_checked(coordinator: Coordinator, name: str) -> None:
    new = Consumer(coordinator, name, "t").beat()
    old = classic(coordinator, name)
    old.go_in()
    assert old.heartbeat(generation_id=9) == ErrorCode.ILLEGAL_GENERATION
    assert old.heartbeat(member_id=new.member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert old.heartbeat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    static = classic(coordinator, name, instance_id="i")
    static.go_in()
    assert static.heartbeat(member_id="nobody") == ErrorCode.FENCED_INSTANCE_ID
    static.sync(member_id="nobody")
    assert static.synced().error_code == ErrorCode.FENCED_INSTANCE_ID
    static.join(member_id="nobody")
    assert static.joined().error_code == ErrorCode.FENCED_INSTANCE_ID
    static.leave()
    for changes, code in (
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_name": "other"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"generation_id": 9}, ErrorCode.ILLEGAL_GENERATION),
    ):
        old.sync(**changes)
        assert old.synced().error_code == code
    other = classic(coordinator, name)
    for protocols in ({"sticky": metadata("t")}, {"range": b""}):
        other.join(protocols=protocols, member_id="other")
        assert other.joined().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert new.commit(1, epoch=old.generation_id, member_id=old.member_id, version=8) == 0
    assert new.commit(1, epoch=9, member_id=old.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert new.fetch(old.member_id, 9) == ErrorCode.ILLEGAL_GENERATION
    codes = [one.error_code for one in old.leave(MemberIdentity("nobody"), MemberIdentity(new.member_id)).members]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, 0], "as in Kafka 4.2, it removes members of both protocols"


def test_a_static_member_changes_its_protocol(coordinator: Coordinator, name: str) -> None:
    new = Consumer(coordinator, name, "t", instance_id="i").beat()
    old = classic(coordinator, name, instance_id="i")
    old.enter_with()
    assert not old.joined().error_code
    assert coordinator.group(name).consumer is None and coordinator.state(name) is GroupState.STABLE
    assert new.code() == ErrorCode.GROUP_ID_NOT_FOUND
    again = Consumer(coordinator, name, "t", instance_id="i").beat()
    assert again.has == [0, 1, 2, 3]
    assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [("disabled", False, False), ("Upgrade", True, False), ("downgrade", False, True), ("BIDIRECTIONAL", True, True)],
)
def test_the_policy(tmp_path: Any, policy: str, upgrades: bool, downgrades: bool) -> None:
    coordinator = Coordinator(tmp_path / "data", **ON, group_consumer_migration_policy=policy)
    try:
        coordinator.broker.create_topic("t", 4)
        classic_group(coordinator, "old")
        answer = Consumer(coordinator, "old", "t").ask()
        assert answer.error_code == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
        assert upgrades or "group.consumer.migration.policy" in (answer.error_message or "")
        new = Consumer(coordinator, "new", "t").beat()
        classic(coordinator, "new").go_in()
        new.ask(member_epoch=-1)
        assert (coordinator.group("new").consumer is None) is downgrades
    finally:
        coordinator.close()


def test_groups_that_are_not_consumers_stay_classic(coordinator: Coordinator, name: str) -> None:
    coordinator.stable(name, protocol_type="connect")
    answer = Consumer(coordinator, name, "t").ask()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "connect" in (answer.error_message or "")
    coordinator.stable(f"{name}-2", protocols={"range": b"?"})
    assert Consumer(coordinator, f"{name}-2", "t").code() == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_unknown_policy(tmp_path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"group\.consumer\.migration\.policy"):
        Coordinator(tmp_path / "data", group_consumer_migration_policy="both")
