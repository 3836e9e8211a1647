"""Groups as a whole: how large, how long an empty one waits, what is passed them, what of them outlives the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.groups.members import NO_TOPICS, Coordinator, assign
from tests.fields import check_fields
from tidelog.broker.apis.metadata import NOT_ASKED_FOR
from tidelog.broker.coordinators.groups.delayed_response import DelayedResponse
from tidelog.broker.coordinators.groups.group import GroupState
from tidelog.broker.coordinators.groups.membership import MAX_PREFIX
from tidelog.broker.requests.listeners import java_address
from tidelog.broker.requests.request import Outcome
from tidelog.security.acl import ALL_OPERATIONS, ResourceType
from tidelog.storage.steps import run_steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.leave_group import MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest

DELAY_MS = 3_000
SESSION_MS = 10_000


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """One with Kafka's delay for empty groups, and little room in a group."""
    folder = tmp_path_factory.mktemp("groups") / "data"
    coordinator = Coordinator(folder, group_initial_rebalance_delay_ms=DELAY_MS, group_max_size=3)
    yield coordinator
    coordinator.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


class TestEmptyGroups:
    def test_wait_for_more(self, coordinator: Coordinator, name: str) -> None:
        """shouldDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup."""
        one = coordinator.member(name)
        one.enter()
        coordinator.pass_time(DELAY_MS - 1)
        assert not one.is_answered
        coordinator.pass_time(1)
        assert one.joined().generation_id == 1

    def test_wait_once_more_if_one_came(self, coordinator: Coordinator, name: str) -> None:
        """shouldResetRebalanceDelayWhenNewMemberJoinsGroupInInitialRebalance."""
        one, two = (coordinator.member(name) for _ in range(2))
        one.enter()
        coordinator.pass_time(DELAY_MS - 1)
        two.enter()
        coordinator.pass_time(1)
        assert not one.is_answered
        coordinator.pass_time(DELAY_MS - 1)
        assert not one.is_answered
        coordinator.pass_time(1)
        assert (one.joined().generation_id, two.joined().generation_id) == (1, 1)

    def test_do_not_wait_for_ever(self, coordinator: Coordinator, name: str) -> None:
        """shouldDelayRebalanceUptoRebalanceTimeout."""
        members = [coordinator.member(name, rebalance_timeout_ms=2 * DELAY_MS) for _ in range(3)]
        for member in members:
            member.enter()
            coordinator.pass_time(DELAY_MS - 1)
        coordinator.pass_time(2)
        assert {member.joined().generation_id for member in members} == {1}

    def test_may_be_left_again(self, coordinator: Coordinator, name: str) -> None:
        one = coordinator.member(name)
        one.enter()
        coordinator.member(name).leave(MemberIdentity(one.member_id))
        assert one.joined().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert coordinator.state(name) is GroupState.PREPARING_REBALANCE
        coordinator.pass_time(DELAY_MS)
        group = coordinator.group(name)
        assert (group.state, group.generation_id, group.leader_id) == (GroupState.EMPTY, 1, None)


class TestSize:
    @pytest.mark.parametrize("kind", ["static", "dynamic", "of old"])
    def test_a_full_group(self, coordinator: Coordinator, name: str, kind: str) -> None:
        """testJoinGroupShouldReceiveErrorIfGroupOverMaxSize, testDynamicMembersJoinGroupWithMaxSizeAndRequiredKnownMember,
        testDynamicMembersJoinGroupWithMaxSize, testStaticMembersJoinGroupWithMaxSize,
        testDynamicMembersCanReJoinGroupWithMaxSizeWhileRebalancing."""
        options: dict[str, Any] = {"version": 3} if kind == "of old" else {}
        members = [coordinator.member(name, instance_id=f"i{i}" if kind == "static" else None, **options) for i in range(4)]
        if kind == "dynamic":
            for member in members:
                member.join()
                assert member.joined().error_code == ErrorCode.MEMBER_ID_REQUIRED
        for member in members:
            member.join()
        *accepted, late = members
        answer = late.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        coordinator.pass_time(DELAY_MS + 1)
        coordinator.pass_time(DELAY_MS + 1)
        assert {member.joined().generation_id for member in accepted} == {1}
        for member in members:
            member.join()
            code = member.joined().error_code
            assert code == (ErrorCode.GROUP_MAX_SIZE_REACHED if member is late else 0)

    def test_a_group_that_is_too_large_already(self, coordinator: Coordinator, name: str) -> None:
        """testLastJoiningMembersAreKickedOutWhenReJoiningGroupWithMaxSize."""
        members = [coordinator.member(name, version=3) for _ in range(3)]
        for member in members:
            member.join()
        coordinator.pass_time(DELAY_MS)
        coordinator.pass_time(DELAY_MS)
        for member in members:
            member.joined()
        assign(members)
        config = coordinator.broker.node.config
        object.__setattr__(config, "group_max_size", 2)
        first, second, third = members
        leader = first if first.is_leader else second if second.is_leader else third
        others = [member for member in members if member is not leader]
        leader.join()
        others[0].join()
        others[1].join()
        assert others[1].joined().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        object.__setattr__(config, "group_max_size", 3)
        assert leader.joined().generation_id == others[0].joined().generation_id == 2
        assert len(coordinator.group(name).members) == 2


class TestAsking:
    def test_what_is_told_of_a_group(self, tmp_path: Path) -> None:
        """testDescribeGroupStableForDynamicMember, testDescribeGroupStableForStaticMember, testDescribeGroupRebalancing,
        testDescribeGroupInactiveGroup, testListGroupsIncludesStableGroups, testListGroupsWithStates, testListGroupsWithTypes."""
        coordinator = Coordinator(tmp_path / "data")
        ask = coordinator.member("").client.ask

        def described(group_id: str, version: int = 5) -> DescribedGroup:
            answer = ask(DescribeGroupsRequest([group_id], version >= 3), version)
            found: DescribedGroup = answer.groups[0]
            return found

        def listed(states: list[str], types: list[str], version: int = 5) -> list[tuple[str, str, str, str]]:
            answer = ask(ListGroupsRequest(states, types), version)
            assert answer.error_code == 0
            return sorted((one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups)

        coordinator.stable("stable", 1, is_static=True)
        (one,) = coordinator.joined("joining", client_id=None, protocol_type="connect")
        coordinator.stable("left")[0].leave()
        for version in range(6):
            group = described("stable", version)
            (member,) = group.members
            check_fields(group, error_code=0, group_state="Stable", protocol_type="consumer", protocol_data="range")
            assert (member.client_id, member.client_host) == ("raw", "/127.0.0.1")
            assert (member.member_metadata, member.member_assignment) == (NO_TOPICS, member.member_id.encode())
            assert member.group_instance_id == ("i0" if version >= 4 else None)
            assert group.authorized_operations == (ALL_OPERATIONS[ResourceType.GROUP] if version >= 3 else NOT_ASKED_FOR)
        group = described("joining")
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "connect", "")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.member_metadata) == (one.member_id, "", b"")
        assert (described("left").group_state, described("left").protocol_type) == ("Empty", "consumer")
        for group_id in ("", "no group"):
            group = described(group_id)
            check_fields(group, error_code=0, group_state="Dead", protocol_type="", members=[])
        stable = ("stable", "consumer", "Stable", "classic")
        left = ("left", "consumer", "Empty", "classic")
        joining = ("joining", "connect", "CompletingRebalance", "classic")
        assert listed([], []) == listed([], ["classic"]) == [joining, left, stable]
        assert listed(["stable", "EMPTY"], ["Classic"]) == [left, stable]
        assert listed(["no state"], []) == listed([], ["consumer"]) == listed(["Stable"], ["no type"]) == []
        assert listed([], [], 0) == [("joining", "connect", "", ""), ("left", "consumer", "", ""), ("stable", "consumer", "", "")]
        coordinator.close()

    @pytest.mark.parametrize("version", range(7))
    def test_who_coordinates(self, coordinator: Coordinator, version: int) -> None:
        client = coordinator.member("").client

        def found(key_type: int) -> list[tuple[int, int, int]]:
            request = FindCoordinatorRequest("group", key_type, ["group", "other"])
            answer = client.ask(request, version)
            coordinators = answer.coordinators if version >= 4 else [answer]
            if version >= 4:
                assert [one.key for one in coordinators] == ["group", "other"]
            return [(one.error_code, one.node_id, one.port) for one in coordinators]

        here = (0, coordinator.broker.node.node_id, coordinator.broker.address[1])
        times = 2 if version >= 4 else 1
        assert found(0) == [here] * times
        if version:
            assert found(1) == [here] * times
            shares = ErrorCode.COORDINATOR_NOT_AVAILABLE if version >= 6 else ErrorCode.INVALID_REQUEST
            assert found(2) == [(shares, -1, -1)] * times
            assert found(3) == [(ErrorCode.INVALID_REQUEST, -1, -1)] * times

    def test_a_topic_that_cannot_be_made(self, tmp_path: Path) -> None:
        """Nothing can be kept, and nobody coordinates."""
        coordinator = Coordinator(tmp_path / "data", offsets_topic_replication_factor=3)
        one = coordinator.member("group")
        answer = one.client.ask(FindCoordinatorRequest("group"), 3)
        assert (answer.error_code, answer.node_id, answer.error_message) == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            -1,
            "COORDINATOR_NOT_AVAILABLE",
        )
        one.join()
        assert one.joined().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        one.sync(protocol_type="consumer", protocol_name="range")
        assert one.synced().error_code == one.heartbeat() == one.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = one.client.ask(DescribeGroupsRequest(["group"], True), 5)
        assert (answer.groups[0].error_code, answer.groups[0].group_state) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        coordinator.close()

    def test_while_groups_are_loaded(self, coordinator: Coordinator, name: str) -> None:
        """testRequestHandlingWhileLoadingInProgress, but for offsets: those are `test_offsets`'s."""
        one = coordinator.member(name)
        log = coordinator.broker.node.groups.log
        broker = coordinator.broker
        assert broker.on_loop(lambda: run_steps(log.making(), broker.node.manager.metadata)) == 0
        partition = log.partition_of(name)
        log._loads.update({partition: object()})
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        one.join()
        assert one.joined().error_code == loading
        one.sync(protocol_type="consumer", protocol_name="range")
        assert one.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert one.heartbeat() == 0
        assert one.leave().error_code == loading
        assert one.client.ask(DescribeGroupsRequest([name]), 5).groups[0].error_code == loading
        assert one.client.ask(ListGroupsRequest(), 5).error_code == loading
        log._loads.clear()
        log._failed.add(partition)
        not_here = ErrorCode.NOT_COORDINATOR
        one.join()
        assert one.joined().error_code == not_here
        one.sync(protocol_type="consumer", protocol_name="range")
        assert one.synced().error_code == one.heartbeat() == one.leave().error_code == not_here
        log._failed.clear()

    def test_an_address_in_javas_words(self) -> None:
        assert java_address("127.0.0.1") == "127.0.0.1"
        assert java_address("::1") == "0:0:0:0:0:0:0:1"
        assert java_address("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1%eth0"
        assert java_address("::ffff:10.1.2.3") == "10.1.2.3"


class TestKept:
    def test_an_assignment_that_cannot_be_stored(self, coordinator: Coordinator, name: str) -> None:
        one = coordinator.member(name)
        one.enter()
        coordinator.pass_time(DELAY_MS)
        one.joined()
        rebalance = coordinator.broker.node.groups.rebalance
        store, rebalance._store_aside = rebalance._store_aside, lambda group, is_wanted, done: done(ErrorCode.NOT_COORDINATOR)
        one.sync({one.member_id: b"x"})
        answer = one.synced()
        rebalance._store_aside = store
        assert (answer.error_code, answer.assignment) == (ErrorCode.NOT_COORDINATOR, b"")
        assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        one.join()
        assert one.joined().generation_id == 2
        assign([one])

    def test_members_outlive_the_broker(self, tmp_path: Path) -> None:
        coordinator = Coordinator(tmp_path / "data")
        leader, follower = coordinator.stable("group", 2, is_static=True, session_timeout_ms=20_000)
        coordinator.stable("other")
        waiting = coordinator.member("other")
        waiting.enter()
        assert not waiting.is_answered
        coordinator.restart()  # Nobody is waited for that waits for a group.
        assert waiting.client.closed()
        again = [coordinator.member("group", instance_id=one.instance_id) for one in (leader, follower)]
        for before, after in zip((leader, follower), again, strict=True):
            after.member_id, after.generation_id = before.member_id, before.generation_id
            after.leader_id, after.protocol_name = before.leader_id, before.protocol_name
            after.sync()
            assert after.synced().assignment == before.member_id.encode()
        coordinator.pass_time(19_999)
        assert again[0].heartbeat() == 0
        coordinator.pass_time(1)
        assert again[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        coordinator.close()

    def test_a_group_that_has_no_room_after_a_start(self, tmp_path: Path) -> None:
        coordinator = Coordinator(tmp_path / "data")
        leader, follower = coordinator.stable("group", 2)
        coordinator.broker.properties["group.max.size"] = 1
        coordinator.restart()
        again = coordinator.member("group")
        again.member_id, again.generation_id = follower.member_id, follower.generation_id
        assert again.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        again.join()
        late = coordinator.member("group")
        late.member_id = leader.member_id
        late.join()
        assert late.joined().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert again.joined().generation_id == 3
        coordinator.close()

    def test_a_hundred_members(self, tmp_path: Path) -> None:
        """One record a generation, and one list of the members."""
        coordinator = Coordinator(tmp_path / "data", group_initial_rebalance_delay_ms=DELAY_MS)
        members = [coordinator.member("group", version=3) for _ in range(100)]
        for _ in range(2):
            for member in members:
                member.join()
            coordinator.pass_time(DELAY_MS)
            coordinator.pass_time(DELAY_MS)
            answers = [member.joined() for member in members]
            assert len({answer.generation_id for answer in answers}) == 1
            assert sorted(len(answer.members) for answer in answers) == [*[0] * 99, 100]
            assign(members)
        group = coordinator.group("group")
        node = coordinator.broker.node
        log = node.manager.log("__consumer_offsets", node.groups.log.partition_of("group"))
        assert log.log_end_offset <= group.generation_id
        coordinator.close()

    def test_an_answer_that_cannot_be_given(self) -> None:
        """What goes wrong with one member's answer must not keep the others from theirs."""
        sent: list[object] = []

        class Asked:
            def respond(self, response: object) -> None:
                sent.append(response)

            def when_gone(self, callback: object) -> None:
                sent.append("waits")

        def fail(result: int) -> HeartbeatResponse:
            raise ValueError(result)

        log, slices = SimpleNamespace(may_be_uncommitted=False), SimpleNamespace(soon=lambda call: call())
        node = SimpleNamespace(groups=SimpleNamespace(log=log), slices=slices)
        failed = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        waiting = DelayedResponse(
            Asked(), node.groups.log, node.slices, "group", fail, lambda code: HeartbeatResponse(error_code=code)
        )  # type: ignore[arg-type,var-annotated]
        assert waiting.later() is Outcome.LATER
        waiting.answer(1)
        assert sent == ["waits", failed]
        assert waiting.later() is Outcome.LATER
        assert sent == ["waits", failed]


def test_a_client_id_that_fills_its_string(coordinator: Coordinator, name: str) -> None:
    """A member id is made of it, and of a uuid, which no string would have room for."""
    one = coordinator.member(name, client_id="x" * 32_767, version=3)
    one.join()
    coordinator.pass_time(DELAY_MS)
    answer = one.joined()
    assert answer.error_code == ErrorCode.NONE
    prefix, _, unique = answer.member_id.partition("-")
    assert (prefix, len(unique)) == ("x" * MAX_PREFIX, 36)
