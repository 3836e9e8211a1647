"""Offsets of groups, asked of Kafka 3.9.1 and of Tidelog in every version: committed, fetched, deleted, by members and by nobody.

Kafka's lists of topics and partitions have no order of their own, so both sides' are sorted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.crowd import Crowd
from tests.interop.differential.deliberate import may_be_silent
from tests.interop.differential.pair import MadeFor, Pair
from tests.interop.differential.test_groups import LONG_MS, Group, lone_member
from tests.kafka.java import wait_until
from tidelog.wire.coordinator.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

TOPICS = ("offsets-a", "offsets-b")
Wanted = dict[str, list[int]]


@pytest.fixture(scope="module", autouse=True)
def topics(pair: Pair, coordinators: None) -> None:
    pair.create(*TOPICS, partitions=3)


@pytest.fixture
def crowd(pair: Pair) -> Iterator[Crowd]:
    one = Crowd(pair)
    yield one
    one.close()


def commit(
    group_id: str,
    offsets: dict[str, list[tuple[int, int]]],
    *,
    metadata: str | None = "m",
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    retention_ms: int = -1,
    timestamp: int = -1,
    epoch: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id,
        generation,
        member_id,
        instance,
        retention_ms,
        [
            OffsetCommitRequestTopic(
                name,
                partitions=[
                    OffsetCommitRequestPartition(index, offset, epoch, timestamp, metadata) for index, offset in of_topic
                ],
            )
            for name, of_topic in offsets.items()
        ],
    )


def fetch(group_id: str, wanted: Wanted | None, version: int, *, require_stable: bool = False) -> OffsetFetchRequest:
    if version >= 8:
        return fetch_many({group_id: wanted}, require_stable=require_stable)
    topics = None if wanted is None else [OffsetFetchRequestTopic(name, indexes) for name, indexes in wanted.items()]
    return OffsetFetchRequest(group_id, topics, require_stable=require_stable)


def fetch_many(groups: dict[str, Wanted | None], *, require_stable: bool = False) -> OffsetFetchRequest:
    made = []
    for group_id, wanted in groups.items():
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopics(name, partition_indexes=indexes) for name, indexes in wanted.items()]
        made.append(OffsetFetchRequestGroup(group_id, topics=topics))
    return OffsetFetchRequest(groups=made, require_stable=require_stable)


def delete(group_id: str, wanted: Wanted) -> OffsetDeleteRequest:
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
        for name, indexes in wanted.items()
    ]
    return OffsetDeleteRequest(group_id, topics)


def in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    return sorted((in_order(one) for one in value), key=repr) if isinstance(value, list) else value


def ask(pair: Pair, label: str, message: MadeFor, version: int) -> Any:
    """Ask both, and compare regardless of order; return Kafka's answer."""
    made = [message(side) if callable(message) else message for side in pair.sides]
    label = f"{label} v{version}"
    silent = may_be_silent(label)
    kafka, tidelog = (
        in_order(side.ask(one, version, has_answer=True, may_be_silent=silent))
        for side, one in zip(pair.sides, made, strict=True)
    )
    pair.asked += 1
    pair.compare(label, kafka, tidelog)
    return kafka


ALL: Wanted = {name: [0, 1, 2] for name in TOPICS}


def compare_offsets(pair: Pair, label: str, *groups: str) -> None:
    for group_id in groups:
        ask(pair, f"{label}: all of {group_id}", fetch(group_id, None, 7), 7)
    ask(pair, f"{label}: of several", fetch_many(dict.fromkeys(groups)), 9)


@pytest.mark.parametrize("version", range(10))
def test_commits_of_nobody(pair: Pair, version: int) -> None:
    """A group without members: whoever commits without a generation may."""
    group = f"nobody-{version}"
    several = {TOPICS[0]: [(0, 5), (2, 7)], TOPICS[1]: [(1, 0)]}
    ask(pair, "several", commit(group, several), version)
    more: dict[str, Any] = {"epoch": 3} if version >= 6 else {}
    ask(pair, "epoch", commit(group, {TOPICS[0]: [(1, 1 << 40)]}, **more), version)
    for metadata in (None, "", "größe", "x" * 50, "x" * 51, "ü" * 50, "\N{GRINNING FACE}" * 25, "\N{GRINNING FACE}" * 26):
        ask(pair, f"metadata {metadata}", commit(group, {TOPICS[1]: [(0, 3)]}, metadata=metadata), version)
        ask(pair, "what was kept", fetch(group, {TOPICS[1]: [0]}, 7), 7)
    for offset in (-1, -2, (1 << 63) - 1, -(1 << 63)):
        ask(pair, f"offset {offset}", commit(group, {TOPICS[1]: [(2, offset)]}), version)
        ask(pair, "what was kept", fetch(group, {TOPICS[1]: [2]}, 7), 7)
    for partition in (-1, 3, 1 << 30):
        ask(pair, f"partition {partition}", commit(group, {TOPICS[0]: [(partition, 1)], TOPICS[1]: [(0, 9)]}), version)
    ask(pair, "unknown topic", commit(group, {"nowhere": [(0, 1)], "": [(0, 1)], "a b": [(0, 0)]}), version)
    ask(pair, "unknown and known", commit(group, {"nowhere": [(0, 1)], TOPICS[0]: [(0, 6)]}), version)
    ask(pair, "internal topic", commit(group, {"__consumer_offsets": [(0, 1)]}), version)
    if version:
        ask(pair, "twice", commit(group, {TOPICS[0]: [(0, 8), (0, 9)]}), version)
    ask(pair, "no topics", commit(group, {}), version)
    ask(pair, "no partitions", commit(group, {TOPICS[0]: []}), version)
    ask(pair, "no group", commit("", {TOPICS[0]: [(0, 1)]}), version)
    ask(pair, "no group, nothing", commit("", {}), version)
    if version >= 1:
        ask(pair, "a generation", commit(group, {TOPICS[0]: [(0, 1)]}, generation=1, member_id="m"), version)
        ask(pair, "a member", commit(group, {TOPICS[0]: [(0, 1)]}, member_id="m"), version)
        ask(pair, "of no group", commit("unknown-group", {TOPICS[0]: [(0, 1)]}, generation=1, member_id="m"), version)
    if version >= 7:
        ask(pair, "an instance", commit(group, {TOPICS[0]: [(0, 1)]}, instance="i"), version)
        ask(pair, "instance and member", commit(group, {TOPICS[0]: [(0, 1)]}, instance="i", member_id="m", generation=3), version)
    if version == 1:
        for timestamp in (-1, 0, 5, 1 << 45):
            ask(pair, f"timestamp {timestamp}", commit(group, {TOPICS[0]: [(0, 11)]}, timestamp=timestamp), version)
    if 2 <= version <= 4:
        for retention_ms in (0, -2, 60_000, (1 << 63) - 1):
            ask(
                pair,
                f"retention {retention_ms}",
                commit(f"{group}-r", {TOPICS[0]: [(0, 11)]}, retention_ms=retention_ms),
                version,
            )
    compare_offsets(pair, "kept", group)
    pair.check()


@pytest.mark.parametrize("version", range(10))
def test_fetches(pair: Pair, version: int) -> None:
    group = "fetched"
    ask(pair, "commit", commit(group, {TOPICS[0]: [(0, 5), (2, 7)]}, epoch=4), 9)
    for stable in (False, True) if version >= 7 else (False,):
        for name in (group, "nowhere", ""):
            ask(pair, f"some {name!r}", fetch(name, {TOPICS[0]: [0, 1], TOPICS[1]: [0]}, version, require_stable=stable), version)
            ask(pair, f"none {name!r}", fetch(name, {}, version, require_stable=stable), version)
            if version >= 2:
                ask(pair, f"all {name!r}", fetch(name, None, version, require_stable=stable), version)
    ask(pair, "strange partitions", fetch(group, {TOPICS[0]: [-1, 3, 1 << 30], "nowhere": [0], "": [0]}, version), version)
    ask(pair, "twice", fetch(group, {TOPICS[0]: [0, 0, 1, 1]}, version), version)
    ask(pair, "no partitions", fetch(group, {TOPICS[0]: []}, version), version)
    if version >= 8:
        many: dict[str, Wanted | None] = {group: None, "nowhere": None, "": {TOPICS[0]: [0]}, "other": {TOPICS[0]: [0], "x": [5]}}
        ask(pair, "many", fetch_many(many), version)
        if version == 9:
            ask(pair, "no groups", fetch_many({}), version)
        twice = fetch_many({group: None})
        twice.groups *= 2
        ask(pair, "a group twice", twice, version)
    pair.check()


@pytest.mark.parametrize("version", range(1, 10))
def test_commits_of_members(pair: Pair, crowd: Crowd, version: int) -> None:
    group = Group(crowd, f"members-{version}")
    offsets = {TOPICS[0]: [(0, 5)]}

    def by(who: str, generation: int, instance: str | None = None) -> MadeFor:
        return lambda side: commit(
            group.group_id,
            offsets,
            generation=generation,
            member_id=crowd.member_id(side, who) or who,
            instance=instance if version >= 7 else None,
        )

    group.join("a", "range")
    ask(pair, "an id that was handed out", by("a", -1), version)
    ask(pair, "... in a generation", by("a", 1), version)
    group.join("a", "range")
    ask(pair, "before the assignment", by("a", 1), version)
    group.sync("a", "a")
    for generation in (-1, 0, 1, 2):
        for who in ("a", "unknown"):
            for instance in (None, "i") if version >= 7 else (None,):
                ask(pair, f"{who} in {generation} {instance}", by(who, generation, instance), version)
    ask(pair, "nobody", commit(group.group_id, offsets), version)
    ask(pair, "without a member id", commit(group.group_id, offsets, generation=1), version)
    group.join("b", "range", version=3)
    ask(pair, "while it rebalances", by("a", 1), version)
    group.leave("a")
    crowd.settle(until="b" if crowd.is_waiting("b") else None)
    ask(pair, "who has left", by("a", 1), version)
    compare_offsets(pair, "members", group.group_id)
    crowd.step("delete with members", "admin", DeleteGroupsRequest([group.group_id]), 2)
    group.leave("b")
    group.describe()
    ask(pair, "of an empty group", by("b", 2), version)
    ask(pair, "nobody, afterwards", commit(group.group_id, offsets), version)
    crowd.step("delete", "admin", DeleteGroupsRequest([group.group_id]), 2)
    compare_offsets(pair, "gone", group.group_id)
    pair.check()


def test_static_members_commit(pair: Pair, crowd: Crowd) -> None:
    group = Group(crowd, "static-commits")
    lone_member(group, instance="i-a")
    old = {side: crowd.member_id(side, "a") for side in pair.sides}
    offsets = {TOPICS[0]: [(0, 5)]}
    for instance in ("i-a", "i-b", None):
        for generation in (0, 1, -1):
            ask(
                pair,
                f"{instance} {generation}",
                lambda side, instance=instance, generation=generation: commit(  # type: ignore[misc]
                    group.group_id, offsets, generation=generation, member_id=old[side], instance=instance
                ),
                9,
            )
            ask(
                pair,
                f"{instance} {generation} alone",
                commit(group.group_id, offsets, generation=generation, instance=instance),
                9,
            )
    group.join("a", "range", "sticky", instance="i-a", member_id="")
    ask(
        pair,
        "fenced",
        lambda side: commit(group.group_id, offsets, generation=1, member_id=old[side], instance="i-a"),
        9,
    )
    pair.check()


def subscribe(group: Group, who: str, metadata: bytes, kind: str = "consumer", label: str = "join") -> None:
    """A member with metadata of the test's own, and stable."""
    for _ in range(2):

        def made(side: Any) -> JoinGroupRequest:
            name = group.crowd.member_id(side, who)
            return JoinGroupRequest(
                group.group_id, LONG_MS, LONG_MS, name, None, kind, [JoinGroupRequestProtocol("range", metadata)]
            )

        group.noted(group.crowd.step(label, who, made, 9))
    group.sync(who, who, kind=kind)


def test_metadata_that_cannot_be_read(pair: Pair, crowd: Crowd) -> None:
    subscribe(Group(crowd, "unreadable"), "a", b"\0\1\0\0\0\1", label="join with unreadable metadata")
    pair.check()


@pytest.mark.parametrize("kind", ["nobody", "consumer", "connect"])
def test_deletes(pair: Pair, crowd: Crowd, kind: str) -> None:
    """Offsets of topics that a consumer subscribes to stay (KIP-496)."""
    group = Group(crowd, f"deletes-{kind}")
    ask(pair, "commit", commit(group.group_id, {name: [(0, 5), (1, 6), (2, 7)] for name in TOPICS}), 9)
    if kind == "consumer":
        subscribe(group, "a", encode_versioned(ConsumerProtocolSubscription([TOPICS[0]]), 1))
    elif kind == "connect":
        subscribe(group, "a", b"anything", "connect")
    ask(pair, f"{kind}: strange", delete(group.group_id, {TOPICS[1]: [-1, 3], "nowhere": [0], "": [0]}), 0)
    ask(pair, f"{kind}: one", delete(group.group_id, {TOPICS[1]: [0]}), 0)
    ask(pair, f"{kind}: again, and twice", delete(group.group_id, {TOPICS[1]: [0, 0]}), 0)
    ask(pair, f"{kind}: of both", delete(group.group_id, {TOPICS[1]: [1], TOPICS[0]: [1]}), 0)
    ask(pair, f"{kind}: nothing", delete(group.group_id, {}), 0)
    ask(pair, f"{kind}: no partitions", delete(group.group_id, {TOPICS[0]: []}), 0)
    for name in ("nowhere", ""):
        ask(pair, f"{kind}: of {name!r}", delete(name, {TOPICS[0]: [0]}), 0)
    compare_offsets(pair, kind, group.group_id)
    ask(pair, f"{kind}: the rest", delete(group.group_id, ALL), 0)
    compare_offsets(pair, f"{kind} emptied", group.group_id)
    group.describe()
    pair.check()


def test_a_deleted_topic(pair: Pair, crowd: Crowd) -> None:
    """Its offsets go with it."""
    pair.create("offsets-gone")
    ask(pair, "commit", commit("deleted-topic", {"offsets-gone": [(0, 5)], TOPICS[0]: [(0, 6)]}), 9)
    ask(pair, "commit that alone", commit("deleted-topic-alone", {"offsets-gone": [(0, 5)]}), 9)
    for side in pair.sides:
        side.ask(DeleteTopicsRequest([], ["offsets-gone"], 30_000), 1, has_answer=True)
        assert [one.error_code for one in side.last.responses] == [ErrorCode.NONE], (side.name, side.last)

    def is_gone(group_id: str) -> bool:
        pair.kafka.ask(fetch(group_id, {"offsets-gone": [0]}, 7), 7, has_answer=True)
        return bool(pair.kafka.last.topics[0].partitions[0].committed_offset == -1)

    wait_until(lambda: is_gone("deleted-topic") and is_gone("deleted-topic-alone"), "Kafka to forget a topic's offsets")
    compare_offsets(pair, "after", "deleted-topic", "deleted-topic-alone")
    for group_id in ("deleted-topic", "deleted-topic-alone"):
        Group(crowd, group_id).describe()
    pair.check()


@pytest.mark.parametrize("seed", range(3))
def test_any_order(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    groups = [f"any-offsets-{seed}-{number}" for number in range(3)]
    for number in range(150):
        group = rng.choice(groups)
        partitions = rng.sample(range(3), rng.choice((1, 2, 3)))
        step = rng.random()
        if step < 0.5:
            offsets = {rng.choice(TOPICS): [(one, rng.randrange(1000)) for one in partitions]}
            version = rng.randrange(1, 10)
            ask(pair, f"{number} commit", commit(group, offsets, metadata=rng.choice((None, "x", "x" * 60))), version)
        elif step < 0.8:
            version = rng.randrange(2, 10)
            wanted = rng.choice((None, {rng.choice(TOPICS): partitions}))
            ask(pair, f"{number} fetch", fetch(group, wanted, version), version)
        elif step < 0.95:
            ask(pair, f"{number} delete", delete(group, {rng.choice(TOPICS): partitions}), 0)
        else:
            ask(pair, f"{number} delete group", DeleteGroupsRequest([group]), rng.randrange(3))
    compare_offsets(pair, "in the end", *groups)
    pair.check()
