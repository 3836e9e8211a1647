"""Members and what they agree on, without a broker. Names of what Kafka's GroupMetadataTest establishes are in the docstrings."""

from __future__ import annotations

from tests.fields import check_fields
from tidelog.broker.coordinators.groups.group import Group, GroupState, JoinResult, Member, SyncResult
from tidelog.broker.coordinators.groups.membership import (
    add,
    answer_join,
    answer_sync,
    await_join,
    begin_generation,
    change,
    check_member,
    choose_protocol,
    elect_leader,
    has_joined,
    has_protocols,
    new_member_id,
    rebalance_timeout_ms,
    remove,
    replace_static,
    supports,
)
from tidelog.broker.loop.delays import Delay
from tidelog.wire.error_codes import ErrorCode

NOW_MS = 1_700_000_000_000


def member(member_id: str, *protocols: str, instance_id: str | None = None, rebalance_timeout_ms: int = 60_000) -> Member:
    return Member(
        member_id,
        group_instance_id=instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols={name: name.encode() for name in protocols or ("range",)},
    )


def group(*members: Member, state: GroupState = GroupState.PREPARING_REBALANCE) -> Group:
    made = Group("group", NOW_MS)
    made._state = state
    for one in members:
        add(made, one)
    return made


def pending() -> Delay:
    return Delay("pending", lambda: None, 0, None)


def test_a_protocol_is_chosen() -> None:
    """testSelectProtocol, testSelectProtocolChoosesCompatibleProtocol."""
    made = group(member("a", "range", "roundrobin"))
    assert choose_protocol(made) == "range"
    add(made, member("b", "roundrobin", "range"))
    assert choose_protocol(made) == "range"
    add(made, member("c", "roundrobin", "range"))
    assert choose_protocol(made) == "roundrobin"
    add(made, member("d", "sticky", "range"))
    assert choose_protocol(made) == "range"
    remove(made, "d")
    assert choose_protocol(made) == "roundrobin"


def test_who_may_join() -> None:
    """testSupportsProtocols."""
    made = group(state=GroupState.EMPTY)
    assert supports(made, "consumer", ["range"])
    assert not supports(made, "consumer", [])
    assert not supports(made, "", ["range"])
    made.move(GroupState.PREPARING_REBALANCE, NOW_MS)
    add(made, member("a", "range", "roundrobin"))
    assert supports(made, "consumer", ["roundrobin", "foo"])
    assert supports(made, "consumer", ["foo", "range"])
    assert not supports(made, "consumer", ["foo", "bar"])
    assert not supports(made, "connect", ["range"])
    add(made, member("b", "roundrobin"))
    assert supports(made, "consumer", ["roundrobin", "foo"])
    assert not supports(made, "consumer", ["range", "foo"])
    remove(made, "a")
    remove(made, "b")
    assert supports(made, "consumer", ["anything"])  # All of nobody have it; the group's type stays until it is empty.
    assert not supports(made, "connect", ["anything"])


def test_a_generation_begins() -> None:
    """testInitNextGeneration, testInitNextGenerationEmptyGroup, testNewGenerationClearsPendingSyncMembers."""
    made = group(member("a"))
    made.pending_syncs.add("a")
    begin_generation(made, NOW_MS + 1)
    assert (made.generation_id, made.protocol_name, made.state) == (1, "range", GroupState.COMPLETING_REBALANCE)
    assert (made.state_timestamp_ms, made.pending_syncs) == (NOW_MS + 1, set())
    remove(made, "a")
    made.move(GroupState.PREPARING_REBALANCE, NOW_MS + 2)
    begin_generation(made, NOW_MS + 2)
    check_fields(made, generation_id=2, protocol_name=None, state=GroupState.EMPTY, leader_id=None)


def test_a_member_changes() -> None:
    """testUpdateMember."""
    made = group(one := member("a", "range"))
    assert has_protocols(one, {"range": b"range"})
    change(made, one, {"roundrobin": b"x", "range": b"y"}, 30_000, 20_000)
    assert supports(made, "consumer", ["roundrobin"])
    assert (one.rebalance_timeout_ms, one.session_timeout_ms) == (30_000, 20_000)
    assert not has_protocols(one, {"range": b"y", "roundrobin": b"x"})
    assert has_protocols(one, {"roundrobin": b"x", "range": b"y"})
    add(made, member("b", "range", rebalance_timeout_ms=40_000))
    assert rebalance_timeout_ms(made) == 40_000
    assert rebalance_timeout_ms(group()) == 0


def test_a_static_member_is_replaced() -> None:
    """testReplaceGroupInstance."""
    made = group(one := member("old", instance_id="i"), member("other"))
    joins: list[JoinResult] = []
    syncs: list[SyncResult] = []
    await_join(made, one, joins.append)
    one.answer_sync = syncs.append
    made.pending_syncs.add("old")
    replace_static(made, one, "new")
    assert [(result.member_id, result.error_code) for result in joins] == [("old", ErrorCode.FENCED_INSTANCE_ID)]
    assert syncs == [SyncResult(ErrorCode.FENCED_INSTANCE_ID)]
    assert (made.leader_id, made.static_members, made.awaiting_join) == ("new", {"i": "new"}, 0)
    assert (set(made.members), made.pending_syncs) == ({"new", "other"}, {"new"})
    assert check_member(made, "new", "i") == check_member(made, "new", None) == ErrorCode.NONE
    assert check_member(made, "old", "i") == ErrorCode.FENCED_INSTANCE_ID
    assert check_member(made, "old", None) == check_member(made, "new", "j") == ErrorCode.UNKNOWN_MEMBER_ID
    remove(made, "new")
    assert (made.static_members, made.leader_id) == ({}, "other")


def test_requests_that_wait() -> None:
    """testInvokeJoinCallback, testNotInvokeJoinCallback, testInvokeSyncCallback, testNotInvokeSyncCallback."""
    made = group(one := member("a"))
    answers: list[object] = []
    answer_join(made, one, JoinResult("a"))
    assert not answer_sync(one, SyncResult())
    assert (answers, made.awaiting_join) == ([], 0)
    await_join(made, one, answers.append)
    await_join(made, one, answers.append)  # The client has sent it again: one member waits.
    assert (made.awaiting_join, has_joined(made)) == (1, True)
    answer_join(made, one, JoinResult("a"))
    answer_join(made, one, JoinResult("a"))
    assert (answers, made.awaiting_join, has_joined(made)) == ([JoinResult("a")], 0, False)
    one.answer_sync = answers.append
    assert answer_sync(one, SyncResult())
    assert len(answers) == 2


def test_ids_that_were_handed_out() -> None:
    """testRemovalFromPendingAfterMemberIsStable, testRemovalFromPendingWhenMemberIsRemoved,
    testRemovalFromPendingSyncWhenMemberIsRemoved."""
    made = group(one := member("a"))
    await_join(made, one, lambda result: None)
    for name in ("b", "c"):
        made.pending_members[name] = pending()
    first, second = made.pending_members.values()
    assert not has_joined(made)
    add(made, two := member("b"))
    remove(made, "c")
    assert (made.pending_members, first.is_cancelled, second.is_cancelled) == ({}, True, True)
    assert not has_joined(made)
    await_join(made, two, lambda result: None)
    assert has_joined(made)
    made.pending_syncs.update("ab")
    answer_join(made, two, JoinResult("b"))
    remove(made, "b")
    assert made.pending_syncs == {"a"}


def test_a_leader_is_somebody_who_joins() -> None:
    made = group(member("a"), two := member("b"), three := member("c"))
    assert not elect_leader(made)
    await_join(made, three, lambda result: None)
    assert (elect_leader(made), made.leader_id) == (True, "c")
    await_join(made, two, lambda result: None)
    assert (elect_leader(made), made.leader_id) == (True, "c")
    answer_join(made, three, JoinResult("c"))
    remove(made, "c")
    assert made.leader_id == "a"
    assert not elect_leader(group())


def test_ids_say_whose_they_are() -> None:
    assert new_member_id("client", None).startswith("client-")
    assert new_member_id("client", "instance").startswith("instance-")
    assert new_member_id("", None) != new_member_id("", None)
