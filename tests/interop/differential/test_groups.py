"""Groups, asked of Kafka 3.9.1 and of Tidelog in every version: members that join, sync, beat, leave, in any order, well or not.

Kafka picks a new leader, once the old one has left, by the hash of ids that it made up: here a leader only leaves where one
other member is left to be it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.differential.crowd import Crowd
from tests.interop.differential.pair import Pair, Side
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.wire.codec import Message
from tidelog.wire.coordinator.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CONSUMER = "consumer"
LONG_MS = 1_800_000
"""The longest there may be: nobody beats, and no session is to end on one side a moment before it does on the other."""
WHO = ("a", "b", "c")
pytestmark = pytest.mark.usefixtures("coordinators")

VOTES = (("range", "sticky"), ("range", "sticky"), ("range", "sticky"), ("range",), ("range", "other", "sticky"), ("other",))
"""Protocols in the order of a member's liking. Of two that have as many votes, Kafka takes the one its hash map names first."""

MadeFor = Callable[[Side], Message]


@pytest.fixture
def crowd(pair: Pair) -> Iterator[Crowd]:
    one = Crowd(pair)
    yield one
    one.close()


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(list(topics)), 1)


def protocols(who: str, *names: str) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name, subscription(f"{who}-{name}")) for name in names]


class Group:
    """Requests of the members of a group, by their names; what they say of themselves may be wrong."""

    def __init__(self, crowd: Crowd, group_id: str) -> None:
        self.crowd = crowd
        self.group_id = group_id
        self.generation = -1
        self.protocol: str | None = None
        self.leader = ""
        """Who leads the generation, "" if nobody was reported."""

    def _id(self, side: Side, who: str, member_id: str | None) -> str:
        return self.crowd.member_id(side, who) if member_id is None else member_id

    def join(
        self,
        who: str,
        *names: str,
        version: int = 9,
        member_id: str | None = None,
        instance: str | None = None,
        kind: str = CONSUMER,
        session_ms: int = LONG_MS,
        rebalance_ms: int = LONG_MS,
        label: str = "join",
    ) -> dict[str, Any]:
        def made(side: Side) -> Message:
            return JoinGroupRequest(
                self.group_id,
                session_ms,
                rebalance_ms,
                self._id(side, who, member_id),
                instance if version >= 5 else None,
                kind,
                protocols(who, *names),
                "for a test" if version >= 8 else None,
            )

        answers = self.crowd.step(label, who, made, version)
        return self.noted(answers)

    def noted(self, answers: dict[str, Any]) -> dict[str, Any]:
        """Remember the generation that answers to joins report."""
        for answer in answers.values():
            if isinstance(answer, dict) and "generation_id" in answer and answer["error_code"] == 0:
                self.generation = answer["generation_id"]
                self.protocol = answer["protocol_name"]
                self.leader = next((one for one in WHO if answer["leader"].startswith((f"client-{one} ", f"i-{one} "))), "")
        return answers

    def sync(
        self,
        who: str,
        *assigned: str,
        version: int = 5,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        kind: str | None = CONSUMER,
        name: str | None = "",
        label: str = "sync",
    ) -> dict[str, Any]:
        def made(side: Side) -> Message:
            return SyncGroupRequest(
                self.group_id,
                self.generation if generation is None else generation,
                self._id(side, who, member_id),
                instance if version >= 3 else None,
                kind if version >= 5 else None,
                (self.protocol if name == "" else name) if version >= 5 else None,
                [SyncGroupRequestAssignment(self.crowd.member_id(side, one), f"of {one}".encode()) for one in assigned],
            )

        return self.crowd.step(label, who, made, version)

    def heartbeat(
        self,
        who: str,
        *,
        version: int = 4,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        label: str = "heartbeat",
    ) -> dict[str, Any]:
        def made(side: Side) -> Message:
            told = self.generation if generation is None else generation
            return HeartbeatRequest(self.group_id, told, self._id(side, who, member_id), instance if version >= 3 else None)

        return self.crowd.step(label, who, made, version)

    def leave(
        self, who: str, *members: tuple[str, str | None], version: int = 5, asks: str = "admin", label: str = "leave"
    ) -> dict[str, Any]:
        """`who` leaves, and `members` after it: ids and instances as they are given; "=b" is what `b` is called."""

        def one(side: Side, member_id: str, instance: str | None) -> MemberIdentity:
            if member_id.startswith("="):
                member_id = self.crowd.member_id(side, member_id[1:])
            return MemberIdentity(member_id, instance, "bye" if version >= 5 else None)

        def made(side: Side) -> Message:
            if version < 3:
                return LeaveGroupRequest(self.group_id, self.crowd.member_id(side, who))
            named = [one(side, *member) for member in members] if members else [one(side, f"={who}", None)]
            return LeaveGroupRequest(self.group_id, members=named)

        return self.crowd.step(label, asks, made, version)

    def describe(self, version: int = 5) -> str:
        """Compare what is passed the group; return Kafka's state. What ends at once, each ends at its own moment."""
        pair = self.crowd.pair
        before = len(pair.differences)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            del pair.differences[before:]
            answers = self.crowd.step("describe", "admin", DescribeGroupsRequest([self.group_id], version >= 3), version)
            if len(pair.differences) == before or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return str(answers["admin"]["groups"][0]["group_state"])


@pytest.mark.parametrize("version", range(10))
def test_two_members(pair: Pair, crowd: Crowd, version: int) -> None:
    """A group's whole life in each version of its requests."""
    group = Group(crowd, f"two-{version}")
    others = {"sync": min(version, 5), "beat": min(version, 4), "leave": min(version, 5)}
    for who in ("a", "b"):
        group.join(who, "range", "roundrobin", version=version)
        if version >= 4:
            group.join(who, "range", "roundrobin", version=version)
        if who == "b":
            assert crowd.is_waiting("b")
            group.heartbeat("a", version=others["beat"])
            assert "b" in group.join("a", "range", "roundrobin", version=version)
        group.describe(min(version, 5))
        if who == "b":
            follower = "b" if group.leader == "a" else "a"
            group.sync(follower, version=others["sync"])
        group.sync(group.leader, "a", "b", version=others["sync"])
        group.describe(min(version, 5))
        group.heartbeat(who, version=others["beat"])
    group.sync("a", version=others["sync"], label="sync again")
    group.leave("b", version=others["leave"])
    group.heartbeat("a", version=others["beat"], label="after b left")
    group.join("a", "range", version=version)
    group.sync("a", "a", version=others["sync"])
    group.leave("a", version=others["leave"])
    group.describe(min(version, 5))
    group.leave("a", version=others["leave"], label="leave again")
    crowd.step("list", "admin", ListGroupsRequest(), 5)
    crowd.step("delete", "admin", DeleteGroupsRequest([group.group_id, "nowhere", ""]), min(version, 2))
    group.describe(min(version, 5))
    pair.check()


@pytest.mark.parametrize("version", range(10))
def test_what_nobody_should_ask(pair: Pair, crowd: Crowd, version: int) -> None:
    group = Group(crowd, f"wrong-{version}")
    sync, beat, leave = min(version, 5), min(version, 4), min(version, 5)
    empty = Group(crowd, "")
    for one in (empty, group):
        one.sync("a", version=sync, label="no member syncs")
        one.heartbeat("a", version=beat, label="no member beats")
        one.heartbeat("a", version=beat, member_id="x", generation=1, label="unknown beats")
        one.leave("a", version=leave, label="no member leaves")
        one.leave("a", ("x", None), ("", "i"), version=max(3, leave), label="unknown leave")
        one.join("a", "range", version=version, member_id="unknown", label="unknown joins")
        for session_ms in (-1, 0, 499, 1_800_001):
            one.join("a", "range", version=version, session_ms=session_ms, label=f"session {session_ms}")
        one.join("a", version=version, label="no protocols")
        one.join("a", "range", version=version, kind="", label="no protocol type")
        one.join("a", "", version=version, kind="connect", label="empty protocol name")
        one.join("a", "range", "range", "sticky", version=version, label="the same protocol twice")
        crowd.forget("a")
        if one.describe() != "Dead" and one is group:
            # Whatever was made of these, the group is emptied by those that are members.
            crowd.step("delete a group that may have members", "admin", DeleteGroupsRequest([one.group_id]), 2)
        if crowd.is_waiting("a"):
            crowd.hang_up("a")
    pair.check()


def lone_member(
    group: Group, who: str = "a", *, instance: str | None = None, names: tuple[str, ...] = ("range", "sticky")
) -> None:
    """One member, and stable."""
    group.join(who, *names, instance=instance)
    if instance is None:
        group.join(who, *names)
    group.sync(who, who, instance=instance)


@pytest.mark.parametrize("version", range(10))
def test_wrong_members_of_a_stable_group(pair: Pair, crowd: Crowd, version: int) -> None:
    group = Group(crowd, f"stable-{version}")
    lone_member(group)
    sync, beat, leave = min(version, 5), min(version, 4), min(version, 5)
    for generation in (-1, 0, 2, 1 << 30):
        group.heartbeat("a", version=beat, generation=generation, label=f"generation {generation}")
        group.sync("a", "a", version=sync, generation=generation, label=f"generation {generation}")
    for member_id in ("", "unknown"):
        for instance in (None, "i"):
            label = f"member {member_id!r} {instance}"
            group.heartbeat("a", version=beat, member_id=member_id, instance=instance, label=label)
            group.sync("a", "a", version=sync, member_id=member_id, instance=instance, label=label)
    group.join("b", "range", version=version, member_id="unknown", label="unknown")
    group.join("b", "range", version=version, kind="connect", label="another type")
    group.join("b", "other", version=version, label="no protocol in common")
    group.join("b", version=version, label="no protocols")
    group.join("b", "range", version=version, session_ms=1, label="session")
    for kind, name in (
        (None, None),
        ("connect", "range"),
        (CONSUMER, "sticky"),
        (CONSUMER, None),
        (None, "range"),
        ("", "range"),
    ):
        group.sync("a", "a", version=sync, kind=kind, name=name, label=f"sync {kind} {name}")
    group.leave("b", ("unknown", None), ("", None), ("unknown", "i"), version=max(3, leave), label="unknown leave")
    crowd.step("delete a group with members", "admin", DeleteGroupsRequest([group.group_id]), min(version, 2))
    group.describe()
    group.leave("a", version=leave)
    pair.check()


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members(pair: Pair, crowd: Crowd, version: int) -> None:
    """Instances that come back, are replaced, and fenced (KIP-345)."""
    group = Group(crowd, f"static-{version}")
    sync, beat = min(version, 5), min(version, 4)
    group.join("a", "range", version=version, instance="i-a")
    group.sync("a", "a", version=sync, instance="i-a")
    group.join("b", "range", version=version, instance="i-b")
    group.heartbeat("a", version=beat, instance="i-a")
    group.join("a", "range", version=version, instance="i-a")
    group.sync("b", version=sync, instance="i-b")
    group.sync("a", "a", "b", version=sync, instance="i-a")
    group.describe()
    # They come back without their ids: nobody rebalances.
    for who, other in (("b", "a"), ("a", "b")):
        crowd.hang_up(who)
        old = {side: crowd.member_id(side, who) for side in pair.sides}
        group.join(who, "range", version=version, instance=f"i-{who}", member_id="", label="back")
        group.heartbeat(other, version=beat, instance=f"i-{other}")
        crowd.step(
            "the old one beats",
            "old",
            lambda side, who=who, old=old: HeartbeatRequest(group.group_id, group.generation, old[side], f"i-{who}"),  # type: ignore[misc]
            beat,
        )
        crowd.step(
            "the old one joins",
            "old",
            lambda side, who=who, old=old: JoinGroupRequest(  # type: ignore[misc]
                group.group_id, LONG_MS, LONG_MS, old[side], f"i-{who}", CONSUMER, protocols(who, "range")
            ),
            version,
        )
        if not crowd.is_waiting(who):
            group.sync(who, "a", "b", version=sync, instance=f"i-{who}")
        group.describe()
    group.heartbeat("a", version=beat, instance="i-b", label="another's instance")
    group.heartbeat("a", version=beat, instance="i-x", label="unknown instance")
    # Another subscription: now they do.
    group.join("b", "range", "sticky", version=version, instance="i-b", member_id="", label="back with more")
    group.describe()
    if crowd.is_waiting("b"):
        group.join("a", "range", "sticky", version=version, instance="i-a", label="again")
    group.describe()
    group.leave("b", ("", "i-b"), ("wrong", "i-a"), ("", "i-x"), ("=a", "i-b"), version=max(3, sync))
    group.leave("a", ("", "i-a"), version=max(3, sync))
    group.describe()
    pair.check()


def test_a_group_is_full(pair: Pair, crowd: Crowd) -> None:
    """group.max.size is 4. The leader is the one that is too late: who leads then, Kafka leaves to chance."""
    crowd.compares_leaders = False
    group = Group(crowd, "full")
    for who in "abcdef":
        group.join(who, "range", version=4)
    for who in "abcdef":
        if not crowd.is_waiting(who):
            group.join(who, "range", version=4)
    group.describe()
    for who in "abcdef":
        if not crowd.is_waiting(who):
            group.join(who, "range", version=3, label="joins or joins again")
    group.describe()
    pair.check()


def test_sessions_end(pair: Pair, crowd: Crowd) -> None:
    """A member that is silent is gone once its session is over, and the others hear of it."""
    group = Group(crowd, "silent")
    lone_member(group)
    # Long enough to get as far as the rebalance, whatever else the machine does.
    group.join("b", "range", version=3, session_ms=15_000)
    group.join("a", "range", version=3)
    group.sync("b")
    group.sync("a", "a", "b")
    group.describe()
    group.join("a", "sticky", "range", version=3, label="waits for b")
    group.noted(crowd.settle(until="a"))
    group.describe()
    group.heartbeat("b", generation=2, label="too late")
    # One that was reported its id, and never comes (KIP-394).
    group.sync("a", "a")
    group.join("c", "range", session_ms=600)
    group.describe()
    group.leave("a")
    wait_until(lambda: group.describe() == "Empty", "a group that nobody is in any more")
    pair.check()


def test_votes(pair: Pair, crowd: Crowd) -> None:
    """Of the protocols that all have, the one that most like best."""
    group = Group(crowd, "votes")
    liked = {"a": ("range", "x", "sticky"), "b": ("x", "sticky", "range"), "c": ("other", "sticky", "range")}
    for _ in range(2):
        for who, names in liked.items():
            if not crowd.is_waiting(who):
                group.join(who, *names, version=3)
    group.join("a", *liked["a"], version=3, label="again")
    group.sync(group.leader, *WHO)
    group.describe()
    pair.check()


LATE_MS = 12_000
"""Of each two steps that are meant to be in time, the second is, though the machine may stand still between them."""


def test_rebalance_timeout(pair: Pair, crowd: Crowd) -> None:
    """Who does not join again in time is no member any more, though its session goes on."""
    group = Group(crowd, "late")
    group.join("a", "range", version=1, rebalance_ms=LATE_MS)
    group.sync("a", "a")
    group.join("b", "range", version=1, rebalance_ms=LATE_MS, label="waits for a")
    if crowd.is_waiting("b"):
        group.noted(crowd.settle(until="b"))
    group.heartbeat("a", generation=1, label="late")
    # And a leader that never says what its members get.
    group.join("c", "range", version=1, rebalance_ms=LATE_MS)
    group.join("b", "range", version=1, rebalance_ms=LATE_MS)
    follower = "c" if group.leader == "b" else "b"
    group.sync(follower, label="waits for the leader")
    if crowd.is_waiting(follower):
        group.noted(crowd.settle(until=follower))
    group.describe()
    pair.check()


@pytest.mark.parametrize("seed", range(6))
def test_any_order(pair: Pair, crowd: Crowd, seed: int) -> None:
    """Three clients that do anything at any time, mostly what they should."""
    rng = random.Random(seed)
    group = Group(crowd, f"any-{seed}")
    is_static = {who: rng.random() < 0.4 for who in WHO}
    for _ in range(120):
        who = rng.choice(WHO)
        instance = f"i-{who}" if is_static[who] else None
        if crowd.is_waiting(who):
            if rng.random() < 0.15:
                crowd.hang_up(who)
                group.leader = ""
            continue
        any_step(rng, group, who, instance)
        if rng.random() < 0.3:
            group.describe()
    for who in WHO:
        crowd.hang_up(who)
    group.describe()
    pair.check()


def any_step(rng: random.Random, group: Group, who: str, instance: str | None) -> None:
    wrong = rng.random() < 0.15
    member_id = rng.choice(("", "unknown")) if wrong else None
    generation = group.generation + rng.choice((-1, 1)) if rng.random() < 0.05 else None
    if rng.random() < 0.05:
        instance = rng.choice((None, "i-a", "i-b", "i-x"))
    step = rng.choice(("join", "join", "join", "sync", "sync", "beat", "leave"))
    if step == "join":
        names = rng.choice(VOTES)
        group.join(who, *names, version=rng.choice((3, 5, 7, 9)), member_id=member_id, instance=instance)
    elif step == "sync":
        assigned = WHO if who == group.leader else ()
        group.sync(who, *assigned, version=rng.choice((3, 5)), generation=generation, member_id=member_id, instance=instance)
    elif step == "beat":
        group.heartbeat(who, version=rng.choice((3, 4)), generation=generation, member_id=member_id, instance=instance)
    elif group.leader and who != group.leader:
        group.leave(
            who, (f"={who}" if member_id is None else member_id, instance), version=rng.choice((3, 5)), asks=f"admin-{who}"
        )


# --- coordinators and lists


@pytest.mark.parametrize("version", range(7))
def test_coordinators(pair: Pair, version: int) -> None:
    for key_type in (0, 1, 2, 3, -1) if version else (0,):
        for keys in (["g"], [""], ["g", "h", "g"], ["x" * 300]):
            one = FindCoordinatorRequest(coordinator_keys=keys) if version >= 4 else FindCoordinatorRequest(keys[0])
            one.key_type = key_type
            pair.ask(f"coordinator of {key_type} {keys[0][:3]!r} {len(keys)}", one, version)
    if version >= 4:
        pair.ask("of nobody", FindCoordinatorRequest(), version)
    pair.check()


@pytest.mark.parametrize("version", range(6))
def test_lists(pair: Pair, crowd: Crowd, version: int) -> None:
    pair.ask("unknown, and twice", DescribeGroupsRequest(["nowhere", "", "nowhere"]), version)
    pair.ask("no groups", DescribeGroupsRequest([]), version)
    for states in ([], ["Stable"], ["stable", "EMPTY"], ["Dead"], ["Assigning"], ["nonsense"], [""]):
        for types in ([], ["classic"], ["Classic"], ["consumer"], ["nonsense"], [""]):
            asked = ListGroupsRequest(states if version >= 4 else [], types if version >= 5 else [])
            answers = [sorted_groups(side.ask(asked, version, has_answer=True)) for side in pair.sides]
            pair.compare(f"list {states} {types} v{version}", *answers)
            if version < 5:
                break
        if version < 4:
            break
    pair.check()


def sorted_groups(answer: Any) -> Any:
    return answer if isinstance(answer, str) else {**answer, "groups": sorted(answer["groups"], key=repr)}
