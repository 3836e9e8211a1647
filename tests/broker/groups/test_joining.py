"""Joining, syncing, heartbeats, leaving: over the wire, on a clock that stands still. What Kafka's GroupCoordinatorTest has.

Kafka's names of the tests are in the docstrings. Which state answers what to whom: `tidelog.broker.coordinators.groups.joining`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.groups.members import NO_TOPICS, RANGE, Coordinator, Member, assign
from tests.broker.loop_turns import LoopTurns
from tests.broker.test_widest import LONGEST_S
from tests.fields import check_fields
from tidelog.broker.apis.join_group import MAX_PROTOCOLS
from tidelog.broker.coordinators.groups.group import GroupState
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.leave_group import MemberIdentity

ROUND_ROBIN = {"roundrobin": NO_TOPICS}
BOTH = RANGE | ROUND_ROBIN
OTHER_METADATA = {"range": NO_TOPICS[:-4] + b"\0\0\0\1u"}
SESSION_MS = 10_000
REBALANCE_MS = 60_000
MINUTE = 60_000


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path_factory.mktemp("groups") / "data")
    yield coordinator
    coordinator.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Each test has a group of its own."""
    return str(request.node.name)


def refusal(member: Member, **changes: object) -> int:
    member.join(**changes)
    return int(member.joined().error_code)


class TestJoin:
    def test_a_group_of_one(self, coordinator: Coordinator, name: str) -> None:
        """testValidJoinGroup, testJoinGroupReturnsTheProtocolType, testListGroupsIncludesRebalancingGroups."""
        one = coordinator.member(name)
        one.join()
        first = one.joined()
        assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert first.member_id.startswith("raw-")
        one.join()
        answer = one.joined()
        check_fields(answer, error_code=0, generation_id=1, protocol_type="consumer", protocol_name="range")
        assert answer.leader == answer.member_id == first.member_id
        assert [(member.member_id, member.metadata) for member in answer.members] == [(first.member_id, NO_TOPICS)]
        assert not answer.skip_assignment
        assert coordinator.state(name) is GroupState.COMPLETING_REBALANCE

    @pytest.mark.parametrize("version", range(10))
    def test_every_version(self, coordinator: Coordinator, name: str, version: int) -> None:
        one = coordinator.member(name, version=version)
        one.enter()
        answer = one.joined()
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
        assert answer.protocol_type == ("consumer" if version >= 7 else None)
        one.sync({one.member_id: b"all"})
        assert one.synced().assignment == b"all"
        assert one.heartbeat() == 0
        assert refusal(one, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        member = coordinator.group(name).members[one.leader_id]
        assert member.rebalance_timeout_ms == (REBALANCE_MS if version else SESSION_MS)

    def test_what_is_refused(self, coordinator: Coordinator, name: str) -> None:
        """testInvalidGroupId, testJoinGroupSessionTimeoutTooSmall, testJoinGroupSessionTimeoutTooLarge,
        testJoinGroupWithEmptyProtocolType, testJoinGroupWithEmptyGroupProtocol, testJoinGroupUnknownConsumerNewGroup,
        testJoinGroupProtocolTypeIsNotProvidedWhenAnErrorOccurs."""
        one = coordinator.member(name)
        assert refusal(one, group_id="") == ErrorCode.INVALID_GROUP_ID
        assert refusal(one, session_timeout_ms=5_999) == ErrorCode.INVALID_SESSION_TIMEOUT
        assert refusal(one, session_timeout_ms=1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
        assert refusal(one, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        one.member_id = ""
        for instance_id in (None, "i"):
            assert refusal(one, protocol_type="", group_instance_id=instance_id) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            assert refusal(one, protocols={}, group_instance_id=instance_id) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        one.join(member_id="nobody")
        answer = one.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
        check_fields(answer, generation_id=-1, protocol_type=None, protocol_name=None, leader="")

    def test_protocols_that_do_not_fit(self, coordinator: Coordinator, name: str) -> None:
        """testJoinGroupInconsistentProtocolType, testJoinGroupInconsistentGroupProtocol,
        testJoinGroupUnknownConsumerExistingGroup, testJoinGroupSecondJoinInconsistentProtocol."""
        (one,) = coordinator.stable(name)
        other = coordinator.member(name)
        assert refusal(other, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert refusal(other, protocols=ROUND_ROBIN) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert refusal(other, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        other.member_id = ""
        assert refusal(other) == ErrorCode.MEMBER_ID_REQUIRED
        assert refusal(other, protocols={}) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        other.join(protocols=BOTH)
        assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        one.join()
        assert (one.joined().protocol_name, other.joined().protocol_name) == ("range", "range")

    def test_too_many_protocols(self, coordinator: Coordinator, name: str) -> None:
        """300,000 of one member were gone through in one turn of the loop, with each generation."""
        most = {str(number): NO_TOPICS for number in range(MAX_PROTOCOLS)}
        one = coordinator.member(name, protocols=most)
        one.enter()
        assert one.joined().protocol_name == "0"
        one.join(protocols=most | RANGE)
        answer = one.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, one.member_id)
        many = {str(number): b"" for number in range(100_000)}
        assert refusal(coordinator.member(name), protocols=many) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        one.sync()
        assert one.synced().error_code == ErrorCode.NONE

    def test_the_protocol_that_most_like_best(self, coordinator: Coordinator, name: str) -> None:
        first, *others = [coordinator.member(name, protocols=protocols) for protocols in (BOTH, *[ROUND_ROBIN | RANGE] * 2)]
        first.enter()
        assert first.joined().protocol_name == "range"
        for other in others:
            other.enter()
        first.join()
        assert {one.joined().protocol_name for one in (first, *others)} == {"roundrobin"}

    def test_a_dead_group(self, coordinator: Coordinator, name: str) -> None:
        """testJoinGroupUnknownConsumerNewDeadGroup, testSyncDeadGroup, testHeartbeatDeadGroup, testSingleLeaveDeadGroup,
        testBatchLeaveDeadGroup, staticMemberRejoinWithLeaderIdAndUnexpectedDeadGroup."""
        (one,) = coordinator.stable(name, is_static=True)
        group = coordinator.group(name)
        group._state = GroupState.DEAD
        expected = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert refusal(one) == expected
        assert refusal(coordinator.member(name)) == expected
        one.sync()
        assert one.synced().error_code == one.heartbeat() == expected
        answer = one.leave()
        assert (answer.error_code, answer.members) == (expected, [])
        group._state = GroupState.STABLE

    def test_known_members_of_a_stable_group(self, coordinator: Coordinator, name: str) -> None:
        """testJoinGroupFromUnchangedFollowerDoesNotRebalance, testJoinGroupFromUnchangedLeaderShouldRebalance."""
        leader, follower = coordinator.stable(name, 2)
        follower.join()
        answer = follower.joined()
        assert (answer.generation_id, answer.leader, answer.members) == (2, leader.member_id, [])
        assert coordinator.state(name) is GroupState.STABLE
        leader.join()
        assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        follower.join()
        assert (leader.joined().generation_id, follower.joined().generation_id) == (3, 3)
        assign([leader, follower])
        follower.join(protocols=OTHER_METADATA)
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_generation_that_waits_for_assignments(self, coordinator: Coordinator, name: str) -> None:
        leader, follower = coordinator.joined(name, 2)
        for member in (leader, follower):
            member.join()
            assert member.joined().generation_id == 2
        follower.sync()
        leader.join(protocols=OTHER_METADATA)
        answer = follower.synced()
        assert (answer.error_code, answer.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")
        follower.join()
        assert {one.joined().generation_id for one in (leader, follower)} == {3}

    def test_a_join_that_is_sent_again(self, coordinator: Coordinator, name: str) -> None:
        """A client that has lost its connection joins again on another one: that is answered, once."""
        leader, follower = coordinator.stable(name, 2)
        follower.join(protocols=OTHER_METADATA)
        follower.client.close()
        again = coordinator.member(name, protocols=OTHER_METADATA)
        again.member_id = follower.member_id
        again.join()
        leader.join()
        assert (leader.joined().generation_id, again.joined().generation_id) == (3, 3)
        assert coordinator.group(name).awaiting_join == 0

    def test_a_lost_connection_is_no_leave(self, coordinator: Coordinator, name: str) -> None:
        leader, follower = coordinator.stable(name, 2)
        follower.client.close()
        coordinator.settle()
        assert len(coordinator.group(name).members) == 2
        assert leader.heartbeat() == 0

    def test_generations_are_counted(self, coordinator: Coordinator, name: str) -> None:
        """testGenerationIdIncrementsOnRebalance, testLeaveGroupUnknownConsumerExistingGroup."""
        (one,) = coordinator.stable(name)
        one.join()
        assert one.joined().generation_id == 2
        assert one.leave(MemberIdentity("nobody")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert one.leave().members[0].error_code == 0
        group = coordinator.group(name)
        assert (group.state, group.generation_id, group.protocol_name) == (GroupState.EMPTY, 3, None)
        one.member_id = ""
        one.enter()
        assert one.joined().generation_id == 4


class TestSync:
    def test_what_is_refused(self, coordinator: Coordinator, name: str) -> None:
        """testSyncGroupFromUnknownGroup, testSyncGroupFromUnknownMember, testSyncGroupFromIllegalGeneration,
        testSyncGroupReturnsAnErrorWhenProtocolTypeIsInconsistent, testSyncGroupReturnsAnErrorWhenProtocolNameIsInconsistent,
        testSyncGroupSucceedWhenProtocolTypeAndNameAreNotProvided, testSyncGroupSucceedWhenProtocolTypeAndNameAreConsistent."""
        (one,) = coordinator.stable(name)
        for changes, expected in (
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"group_id": "no group"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_name": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ):
            one.sync(**changes)
            answer = one.synced()
            assert (answer.error_code, answer.assignment, answer.protocol_name) == (expected, b"", None), changes
        one.sync()
        answer = one.synced()
        assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (one.member_id.encode(), "consumer", "range")
        one.version = 4
        one.sync(protocol_type=None, protocol_name=None)
        assert one.synced().assignment == one.member_id.encode()

    def test_followers_before_and_after_the_leader(self, coordinator: Coordinator, name: str) -> None:
        """testSyncGroupFollowerAfterLeader, testSyncGroupLeaderAfterFollower, testSyncGroupEmptyAssignment."""
        leader, early, late = members = coordinator.joined(name, 3)
        early.sync()
        assert not early.is_answered
        leader.sync({leader.member_id: b"1", early.member_id: b"2", "nobody": b"4"})
        assert (leader.synced().assignment, early.synced().assignment) == (b"1", b"2")
        assert coordinator.state(name) is GroupState.STABLE
        late.sync()
        assert (late.synced().assignment, coordinator.state(name)) == (b"", GroupState.STABLE)
        assert all(member.heartbeat() == 0 for member in members)

    def test_assignments_of_very_many(self, coordinator: Coordinator, name: str) -> None:
        """All but one are of ids that are no members: they are passed over, in slices."""
        (one,) = coordinator.joined(name)
        with LoopTurns(coordinator.broker) as turns:
            one.sync({one.member_id: b"all"} | {str(number): b"" for number in range(600_000)})
            assert one.synced().assignment == b"all"
            assert turns.longest.seconds < 4 * LONGEST_S, turns.turns
        assert coordinator.state(name) is GroupState.STABLE

    def test_a_rebalance_meanwhile(self, coordinator: Coordinator, name: str) -> None:
        """testHeartbeatDuringRebalanceCausesRebalanceInProgress, testHeartbeatRebalanceInProgress."""
        leader, follower = coordinator.joined(name, 2)
        follower.sync()
        third = coordinator.member(name)
        third.enter()
        assert follower.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        leader.sync({leader.member_id: b"1"})
        assert leader.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert leader.heartbeat() == follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    def test_who_leaves_while_it_waits(self, coordinator: Coordinator, name: str) -> None:
        """Kafka forgets such a request; here it is answered."""
        leader, follower = coordinator.joined(name, 2)
        follower.sync()
        assert leader.leave(MemberIdentity(follower.member_id)).members[0].error_code == 0
        assert follower.synced().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        third = coordinator.member(name, instance_id="i")
        third.join()
        assert leader.leave(MemberIdentity("", "i")).members[0].error_code == 0
        answer = third.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


class TestHeartbeat:
    def test_what_it_is_answered(self, coordinator: Coordinator, name: str) -> None:
        """testValidHeartbeat, testHeartbeatIllegalGeneration, testHeartbeatUnknownConsumerExistingGroup,
        testHeartbeatUnknownGroup, testHeartbeatEmptyGroup."""
        (one,) = coordinator.joined(name)
        assert one.heartbeat() == 0
        assign([one])
        assert one.heartbeat() == 0
        assert one.heartbeat(group_id="") == ErrorCode.INVALID_GROUP_ID
        assert one.heartbeat(group_id="no group") == ErrorCode.UNKNOWN_MEMBER_ID
        assert one.heartbeat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert one.heartbeat(generation_id=2) == one.heartbeat(generation_id=-1) == ErrorCode.ILLEGAL_GENERATION
        one.leave()
        assert one.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_session_is_kept_and_ends(self, coordinator: Coordinator, name: str) -> None:
        """testSessionTimeout, testHeartbeatMaintainsSession, testNewMemberFailureAfterSyncGroupCompletion,
        testNewMemberTimeoutCompletion, testCompleteHeartbeatWithMemberAlreadyRemoved."""
        leader, follower = coordinator.stable(name, 2)
        counters = coordinator.broker.node.metrics.counters
        for _ in range(3):
            coordinator.pass_time(SESSION_MS - 1)
            assert leader.heartbeat() == follower.heartbeat() == 0
        coordinator.pass_time(SESSION_MS - 1)
        leader.heartbeat()
        before = (counters.group_sessions_ended, counters.group_rebalances)
        coordinator.pass_time(1)
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        leader.join()
        assert len(leader.joined().members) == 1
        assert counters.group_sessions_ended > before[0]
        assert counters.group_rebalances > before[1]
        coordinator.pass_time(SESSION_MS)
        assert coordinator.state(name) is GroupState.EMPTY

    def test_who_waits_needs_no_heartbeat(self, coordinator: Coordinator, name: str) -> None:
        """testLeaderFailureInSyncGroup, testSessionTimeoutDuringRebalance."""
        leader, follower = coordinator.stable(name, 2)
        follower.join(protocols=OTHER_METADATA)
        coordinator.pass_time(SESSION_MS + 1)  # The leader's session ends with that; the follower waits, and has none.
        answer = follower.joined()
        assert (answer.error_code, answer.leader, len(answer.members)) == (0, follower.member_id, 1)
        leader.member_id = ""
        leader.enter()
        follower.join(protocols=OTHER_METADATA)
        assert (follower.joined().error_code, leader.joined().error_code) == (0, 0)
        leader.sync()
        coordinator.pass_time(SESSION_MS + 1)
        assert leader.synced().error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_shorter_session_takes_effect(self, coordinator: Coordinator, name: str) -> None:
        (one,) = coordinator.stable(name, session_timeout_ms=30 * MINUTE)
        one.join(session_timeout_ms=SESSION_MS)
        one.joined()
        coordinator.pass_time(SESSION_MS)
        assert coordinator.state(name) is GroupState.EMPTY


class TestTime:
    def test_members_that_do_not_come_back(self, coordinator: Coordinator, name: str) -> None:
        """testRebalanceCompletesBeforeMemberJoins, testNewMemberFailureAfterJoinGroupCompletion."""
        leader, follower = coordinator.stable(name, 2, session_timeout_ms=30 * MINUTE)
        third = coordinator.member(name, rebalance_timeout_ms=1)
        third.enter()
        coordinator.pass_time(REBALANCE_MS - 1)
        assert not third.is_answered
        assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        coordinator.pass_time(1)
        answer = third.joined()
        assert (answer.error_code, answer.generation_id, answer.leader) == (0, 3, third.member_id)
        assert [one.member_id for one in answer.members] == [third.member_id]
        assert leader.heartbeat() == follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_new_member_does_not_wait_for_ever(self, coordinator: Coordinator, name: str) -> None:
        """testNewMemberJoinExpiration."""
        coordinator.stable(name, session_timeout_ms=30 * MINUTE, rebalance_timeout_ms=30 * MINUTE)
        other = coordinator.member(name)
        other.enter()
        coordinator.pass_time(5 * MINUTE - 1)
        assert not other.is_answered
        coordinator.pass_time(1)
        answer = other.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
        assert len(coordinator.group(name).members) == 1

    def test_an_id_that_is_handed_out(self, coordinator: Coordinator, name: str) -> None:
        """testJoinGroupCompletionWhenPendingMemberJoins, testJoinGroupCompletionWhenPendingMemberTimesOut,
        testPendingMembersLeavesGroup, testSecondMemberPartiallyJoinAndTimeout, testPendingMemberBatchLeaveGroup."""
        (one,) = coordinator.stable(name, session_timeout_ms=MINUTE)
        second, third, fourth = (coordinator.member(name) for _ in range(3))
        for other in (second, third, fourth):
            assert refusal(other) == ErrorCode.MEMBER_ID_REQUIRED
        assert len(coordinator.group(name).pending_members) == 3
        assert one.heartbeat() == 0
        one.join()
        assert not one.is_answered
        answers = third.leave(MemberIdentity(third.member_id), MemberIdentity("nobody")).members
        assert [answer.error_code for answer in answers] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
        second.join()
        assert not one.is_answered
        coordinator.pass_time(SESSION_MS)
        assert (one.joined().generation_id, second.joined().generation_id) == (2, 2)
        assert refusal(fourth) == ErrorCode.UNKNOWN_MEMBER_ID
        assert not coordinator.group(name).pending_members
        fifth = coordinator.member(name)
        fifth.enter()
        assert refusal(coordinator.member(name), member_id=fifth.member_id, group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_id_that_comes_with_an_instance(self, coordinator: Coordinator, name: str) -> None:
        one = coordinator.member(name)
        one.join()
        member_id = one.joined().member_id
        one.join(group_instance_id="i")
        answer = one.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
        one.member_id = member_id
        one.join()
        assert one.joined().error_code == 0

    @pytest.mark.parametrize("who", ["leader", "followers", "nobody", "everybody"])
    def test_assignments_that_nobody_asks_for(self, coordinator: Coordinator, name: str, who: str) -> None:
        """testRebalanceTimesOutWhenSyncRequestIsNotReceived, testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromFollowers,
        testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromLeaders, testRebalanceDoesNotTimeOutWhenAllSyncAreReceived."""
        leader, *followers = members = coordinator.joined(name, 3, session_timeout_ms=5 * MINUTE)
        asking = {"leader": [leader], "followers": followers, "nobody": [], "everybody": members}[who]
        for member in reversed(asking):
            member.sync({one.member_id: b"x" for one in members} if member is leader else None)
        if leader in asking:
            assert all(member.synced().assignment == b"x" for member in asking)
        coordinator.pass_time(REBALANCE_MS - 1)
        assert coordinator.state(name) is (GroupState.STABLE if leader in asking else GroupState.COMPLETING_REBALANCE)
        coordinator.pass_time(1)
        if who == "followers":
            assert {member.synced().error_code for member in followers} == {ErrorCode.REBALANCE_IN_PROGRESS}
        for member in members:
            if who == "everybody":
                assert member.heartbeat() == 0
            else:
                assert member.heartbeat() == (
                    ErrorCode.REBALANCE_IN_PROGRESS if member in asking else ErrorCode.UNKNOWN_MEMBER_ID
                )
        if who == "nobody":
            assert coordinator.state(name) is GroupState.EMPTY


class TestStatic:
    def test_a_leader_that_is_back(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberRejoinWithLeaderIdAndUnknownMemberId, staticMemberJoinAsFirstMember,
        shouldGetDifferentStaticMemberIdAfterEachRejoin."""
        leader, follower = coordinator.stable(name, 2, is_static=True)
        assert leader.member_id.startswith("i0-")
        ids = {leader.member_id}
        for version, is_leader in ((8, False), (9, True), (5, False)):
            again = coordinator.member(name, instance_id="i0", version=version)
            again.join()
            answer = again.joined()
            assert (answer.error_code, answer.generation_id, again.is_leader) == (0, 2, is_leader)
            assert (answer.skip_assignment, len(answer.members)) == (is_leader, 2 if is_leader else 0)
            assert again.member_id not in ids
            assert answer.leader == (again.member_id if is_leader else leader.member_id)
            again.sync({again.member_id: b"not listened to"})
            assert again.synced().assignment.startswith(b"i0-")
            assert leader.heartbeat() == refusal(leader, member_id=leader.member_id) == ErrorCode.FENCED_INSTANCE_ID
            ids.add(again.member_id)
            leader = again
        assert coordinator.state(name) is GroupState.STABLE
        assert follower.heartbeat() == 0

    def test_a_follower_that_is_back(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberRejoinAsFollowerWithUnknownMemberId, staticMemberRejoinAsFollowerWithKnownMemberIdAndNoProtocolChange,
        staticMemberRejoinWithUpdatedSessionAndRebalanceTimeoutsAndPersistChange,
        staticMemberRejoinWithUnknownMemberIdAndChangeOfProtocolWhileSelectProtocolUnchanged."""
        leader, follower = coordinator.stable(name, 2, is_static=True)
        follower.join()
        assert follower.joined().generation_id == 2
        again = coordinator.member(name, instance_id="i1", protocols=OTHER_METADATA | ROUND_ROBIN, session_timeout_ms=30_000)
        again.join()
        answer = again.joined()
        assert (answer.generation_id, answer.leader, answer.members) == (2, leader.member_id, [])
        again.sync()
        assert again.synced().assignment == follower.member_id.encode()
        member = coordinator.group(name).members[again.member_id]
        assert (member.session_timeout_ms, list(member.protocols)) == (30_000, ["range", "roundrobin"])
        coordinator.pass_time(SESSION_MS - 1)
        leader.heartbeat()
        coordinator.pass_time(30_000 - SESSION_MS)
        assert again.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS  # The leader's session has ended; the longer one has not.

    def test_what_is_stored_when_one_is_back(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberRejoinWithUnknownMemberIdAndChangeOfProtocolWhileSelectProtocolUnchangedPersistenceFailure."""
        leader, _ = coordinator.stable(name, 2, is_static=True)
        again = coordinator.member(name, instance_id="i0", protocols=BOTH)
        groups = coordinator.broker.node.groups
        store, groups.store = groups.store, lambda group: ErrorCode.NOT_COORDINATOR  # type: ignore[method-assign]
        again.join()
        answer = again.joined()
        groups.store = store  # type: ignore[method-assign]
        assert (answer.error_code, answer.member_id, answer.leader) == (ErrorCode.NOT_COORDINATOR, "", leader.member_id)
        assert leader.heartbeat() == 0
        member = coordinator.group(name).members[leader.member_id]
        assert (list(member.protocols), coordinator.group(name).leader_id) == (["range"], leader.member_id)

    def test_one_that_changes_the_protocol(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberRejoinWithUnknownMemberIdAndChangeOfProtocolWithSelectedProtocolChanged,
        staticMemberRejoinWithFollowerIdAndChangeOfProtocol."""
        leader, follower = coordinator.stable(name, 2, is_static=True, protocols=BOTH)
        again = coordinator.member(name, instance_id="i1", protocols=ROUND_ROBIN)
        again.join()
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        leader.join()
        assert leader.joined().protocol_name == again.joined().protocol_name == "roundrobin"
        assign([leader, again])
        assert follower.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        again.join(protocols=ROUND_ROBIN | RANGE)
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    def test_one_that_is_back_before_the_assignment(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberFenceDuplicateSyncingFollowerAfterMemberIdChanged, staticMemberRejoinWithKnownMemberId."""
        leader, follower = coordinator.joined(name, 2, is_static=True)
        follower.sync()
        again = coordinator.member(name, instance_id="i1")
        again.join()
        assert follower.synced().error_code == ErrorCode.FENCED_INSTANCE_ID
        assert coordinator.state(name) is GroupState.PREPARING_REBALANCE
        leader.join()
        assert (leader.joined().generation_id, again.joined().generation_id) == (3, 3)
        leader.join()
        assert leader.joined().generation_id == 3

    def test_two_that_rejoin(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberFenceDuplicateRejoinedFollower, staticMemberFenceDuplicateRejoiningFollowerAfterMemberIdChanged,
        staticMemberRejoinWithKnownLeaderIdToTriggerRebalanceAndFollowerWithChangeOfProtocol,
        staticMemberRejoinWithLeaderIdAndKnownMemberId."""
        leader, follower = coordinator.stable(name, 2, is_static=True)
        third = coordinator.member(name)
        third.enter()
        follower.join()
        again = coordinator.member(name, instance_id="i1")
        again.join()
        old_id, answer = follower.member_id, follower.joined()
        assert (answer.error_code, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, old_id)
        assert refusal(follower) == ErrorCode.FENCED_INSTANCE_ID
        assert not again.is_answered
        leader.join()
        assert {one.joined().generation_id for one in (leader, again, third)} == {3}
        assert leader.is_leader

    def test_instances_that_are_not_who_they_say(self, coordinator: Coordinator, name: str) -> None:
        """staticMemberReJoinWithExplicitUnknownMemberId, staticMemberRejoinAsFollowerWithMismatchedMemberId,
        staticMemberRejoinAsLeaderWithMismatchedMemberId, staticMemberSyncAsLeaderWithInvalidMemberId,
        staticMemberHeartbeatLeaderWithInvalidMemberId, staticMemberJoinWithUnknownInstanceIdAndKnownMemberId."""
        leader, follower = coordinator.stable(name, 2, is_static=True)
        stranger = coordinator.member(name, instance_id="i0")
        for member_id, instance_id, expected in (
            ("nobody", "i0", ErrorCode.FENCED_INSTANCE_ID),
            (follower.member_id, "i0", ErrorCode.FENCED_INSTANCE_ID),
            (leader.member_id, "i1", ErrorCode.FENCED_INSTANCE_ID),
            (leader.member_id, "i7", ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            named = {"member_id": member_id, "group_instance_id": instance_id}
            assert refusal(stranger, **named) == expected
            stranger.sync(None, **named, generation_id=2, protocol_type="consumer", protocol_name="range")
            assert stranger.synced().error_code == expected
            assert stranger.heartbeat(**named, generation_id=2) == expected
        assert coordinator.state(name) is GroupState.STABLE

    def test_they_outlive_a_rebalance(self, coordinator: Coordinator, name: str) -> None:
        """testStaticMemberFollowerFailToRejoinBeforeRebalanceTimeout, testStaticMemberLeaderFailToRejoinBeforeRebalanceTimeout,
        testLeaderFailToRejoinBeforeFinalRebalanceTimeoutWithLongSessionTimeout,
        testLeaderRejoinBeforeFinalRebalanceTimeoutWithLongSessionTimeout."""
        leader, follower = coordinator.stable(name, 2, is_static=True, session_timeout_ms=2 * MINUTE)
        third = coordinator.member(name)
        third.enter()
        coordinator.pass_time(REBALANCE_MS)
        answer = third.joined()
        assert (third.is_leader, {one.group_instance_id for one in answer.members}) == (True, {"i0", "i1", None})
        follower.leave()
        assert coordinator.state(name) is GroupState.PREPARING_REBALANCE
        coordinator.pass_time(REBALANCE_MS)  # The dynamic one is gone, the static one left alone: it is waited for once more.
        group = coordinator.group(name)
        assert (group.state, list(group.members), group.generation_id) == (
            GroupState.PREPARING_REBALANCE,
            [leader.member_id],
            3,
        )
        again = coordinator.member(name, instance_id="i0")
        again.join()
        assert (again.joined().generation_id, again.is_leader) == (4, True)

    def test_they_leave_by_their_instances(self, coordinator: Coordinator, name: str) -> None:
        """testLeaveGroupStaticMemberWithUnknownMemberId, testStaticMembersValidBatchLeaveGroup,
        testStaticMembersFencedInstanceBatchLeaveGroup, testStaticMembersUnknownInstanceBatchLeaveGroup,
        testLeaveGroupWithFencedInstanceId, testStaticMembersUnknownGroupBatchLeaveGroup."""
        leader, follower = coordinator.stable(name, 2, is_static=True)
        answer = leader.leave(
            MemberIdentity("nobody", "i0"),
            MemberIdentity("", "i7"),
            MemberIdentity(leader.member_id, "i7"),
            MemberIdentity(""),
            MemberIdentity("", "i0"),
            MemberIdentity("", "i0"),
            MemberIdentity(follower.member_id),
        )
        assert [one.error_code for one in answer.members] == [
            ErrorCode.FENCED_INSTANCE_ID,
            *[ErrorCode.UNKNOWN_MEMBER_ID] * 3,
            0,
            ErrorCode.UNKNOWN_MEMBER_ID,
            0,
        ]
        assert [one.group_instance_id for one in answer.members] == ["i0", "i7", "i7", None, "i0", "i0", None]
        assert coordinator.state(name) is GroupState.EMPTY
        leader.group_id = "no group"
        assert [one.error_code for one in leader.leave().members] == [ErrorCode.UNKNOWN_MEMBER_ID]
        leader.group_id = ""
        answer = leader.leave()
        assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [])

    def test_before_version_3_one_leaves(self, coordinator: Coordinator, name: str) -> None:
        """testValidLeaveGroup, testLeaveGroupUnknownGroup."""
        (one,) = coordinator.stable(name, version=3)
        one.version = 2
        member_id, one.member_id = one.member_id, "nobody"
        assert one.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        one.member_id = member_id
        assert one.leave().error_code == 0
        assert coordinator.state(name) is GroupState.EMPTY
