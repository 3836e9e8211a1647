"""Consumer groups of real client libraries: librdkafka, kafka-python, aiokafka. The Java clients are in tests/interop.

Members are `tests/kafka/group_members.py`'s: programs that poll, and commit what they have read before they give partitions away.
So that each record is read once, in whatever order members come and go.
`TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Apache Kafka, which judges the tests themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import tidelog
from tests.kafka import Kafka391, numbered_rows
from tests.kafka.clients import create_topics
from tests.kafka.group_members import (
    MEMBERS,
    AioKafkaMember,
    KafkaPythonMember,
    LibrdkafkaMember,
    Member,
    wait_until_read,
    wait_until_settled,
)
from tests.kafka.numbered_rows import FIRST_MS
from tests.patience import PATIENCE_S

with warnings.catch_warnings():
    # kafka-python reads its own files in a way that Python 3.11 advises against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient, MemberToRemove, OffsetTimestamp
    from kafka.errors import FencedInstanceIdError

    from kafka import TopicPartition as PythonTopicPartition

PARTITIONS = 4
LONG_MS = 240_000
"""A session that does not end; libraries want it to be shorter than the time between two polls, of five minutes. A member
that was removed cannot commit what it has read, so others read it again.
"""
SHORT_MS = 2000
"""A session whose end is waited for."""
# kafka-python now and then leaves a socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "200",
    "offsets.topic.num.partitions": "3",
    # Records of long ago would go at the broker's first look.
    "log.retention.ms": "-1",
}

fill = partial(numbered_rows.fill, partitions=PARTITIONS)
places = partial(numbered_rows.places, partitions=PARTITIONS)
check_once = partial(numbered_rows.check_once, partitions=PARTITIONS)


class Served(Protocol):
    """A broker that can be stopped, and started again at its port."""

    def start(self) -> object: ...
    def stop(self) -> object: ...
    def kill(self) -> object: ...


class Peer:
    """The broker of this module's tests."""

    def __init__(self, broker: tidelog.Broker | Kafka391) -> None:
        self.broker: Served = broker
        self.bootstrap = broker.bootstrap_servers if isinstance(broker, tidelog.Broker) else broker.bootstrap


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder: Path = tmp_path_factory.mktemp("groups")
    if os.environ.get("TIDELOG_CLIENTS_AGAINST") == "3.9.1":
        with Kafka391(folder, PROPERTIES) as kafka:
            yield Peer(kafka)
    else:
        with tidelog.Broker(folder / "data", 0, None, **PROPERTIES) as broker:
            yield Peer(broker)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What kafka-python leaves is collected where nobody minds."""
    yield
    gc.collect()


@pytest.mark.parametrize(
    ("kind", "assignor"),
    [
        (LibrdkafkaMember, "range"),
        (LibrdkafkaMember, "cooperative-sticky"),
        (AioKafkaMember, "roundrobin"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.library,
)
def test_members_come_and_go(peer: Peer, kind: type[Member], assignor: str) -> None:
    """One, two, three members, then two, then none, then another: each row is read once."""
    topic = group = f"come-and-go-{kind.library}-{assignor}"
    create_topics(peer.bootstrap, {topic: {}}, PARTITIONS)
    members: list[Member] = []
    with ExitStack() as open_members:

        def join() -> Member:
            member = kind(peer.bootstrap, group, [topic], assignors=[assignor], client_id=f"{kind.library}-{len(members)}")
            members.append(open_members.enter_context(member))
            return member

        fill(peer, topic, 5)
        first = join()
        wait_until_settled([first], places(topic))
        wait_until_read([first], 5 * PARTITIONS)
        second = join()
        wait_until_settled([first, second], places(topic))
        fill(peer, topic, 5, start=5)
        third = join()
        wait_until_settled([first, second, third], places(topic))
        fill(peer, topic, 5, start=10)
        check_once(members, topic, 15)
        if "cooperative" in assignor:
            # Nobody gave away what it kept.
            assert all(len(change.places) < PARTITIONS for change in first.history if change.kind == "revoked")
        first.close()
        wait_until_settled([second, third], places(topic))
        fill(peer, topic, 5, start=15)
        check_once(members, topic, 20)
        assert second.committed() != {}
        second.close()
        third.close()
        fill(peer, topic, 5, start=20)
        last = join()
        wait_until_settled([last], places(topic))
        check_once(members, topic, 25)
        last.commit()
        assert last.committed() == dict.fromkeys(places(topic), 25)


def test_libraries_share_a_group(peer: Peer) -> None:
    """One group, a member of each library, led by librdkafka's, then by aiokafka's."""
    topic = group = "shared"
    create_topics(peer.bootstrap, {topic: {}}, PARTITIONS)
    members: list[Member] = []
    with ExitStack() as open_members:
        rows = 0
        for first, second in ((LibrdkafkaMember, AioKafkaMember), (AioKafkaMember, LibrdkafkaMember)):
            here: list[Member] = []
            for kind in (first, second, KafkaPythonMember):
                here.append(open_members.enter_context(kind(peer.bootstrap, group, [topic], session_timeout_ms=LONG_MS)))
                members.append(here[-1])
                wait_until_settled(here, places(topic))
                fill(peer, topic, 2, start=rows)
                rows += 2
            check_once(members, topic, rows)
            for gone, left in ((here[2], here[:2]), (here[0], here[1:2]), (here[1], [])):
                gone.close()
                fill(peer, topic, 1, start=rows)
                rows += 1
                if left:
                    wait_until_settled(left, places(topic))
                    check_once(members, topic, rows)


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.library)
def test_static_members(peer: Peer, kind: type[Member]) -> None:
    """It may be gone for a while without anybody else noticing; who takes its place fences it; after its session it is gone."""
    topic = group = f"static-{kind.library}"
    create_topics(peer.bootstrap, {topic: {}}, PARTITIONS)
    fill(peer, topic, 2)
    with ExitStack() as open_members:

        def join(instance_id: str, session_timeout_ms: int = LONG_MS) -> Member:
            return open_members.enter_context(
                kind(
                    peer.bootstrap,
                    group,
                    [topic],
                    instance_id=instance_id,
                    client_id=instance_id,
                    session_timeout_ms=session_timeout_ms,
                )
            )

        stays = open_members.enter_context(LibrdkafkaMember(peer.bootstrap, group, [topic], instance_id="one"))
        wait_until_settled([stays], places(topic))
        goes = join("two")
        wait_until_settled([stays, goes], places(topic))
        wait_until_read([stays, goes], 2 * PARTITIONS)
        had, history = set(goes.assigned), list(stays.history)
        goes.close()
        fill(peer, topic, 2, start=2)
        again = join("two")
        again.wait_for(lambda member: member.assigned == had, "what it had")
        check_once([stays, goes, again], topic, 4)
        assert stays.history == history
        if kind is not AioKafkaMember:  # which does not say who it is when it commits or is alive, and comes back
            third = join("two")
            third.wait_for(lambda member: member.assigned == had, "what it had")
            with pytest.raises((KafkaException, FencedInstanceIdError), match=r"(?i)fenced"):
                again.commit()
            third.commit()
            third.close()
        again.close()
        last = join("two", SHORT_MS)
        last.wait_for(lambda member: bool(member.assigned), "what it had")
        last.close()
        stays.wait_for(lambda member: member.assigned == set(places(topic)), "the end of the other's session")


@pytest.mark.parametrize("kind", [LibrdkafkaMember, KafkaPythonMember], ids=lambda kind: kind.library)
def test_a_member_that_was_removed(peer: Peer, kind: type[Member]) -> None:
    """It joins again for another reason before a heartbeat tells it, and comes back: see `tests/kafka/group_members.py`.

    A process that was stopped for longer than its session is in this state. kafka-python's now and then did not come back: it
    lost a join that its poll did not wait for, or ended, because its listener's commit failed (so one of six with Apache Kafka
    3.9.1). Both are explained there.
    """
    topic, other, group = (f"{name}-{kind.library}" for name in ("removed", "another", "removed"))
    create_topics(peer.bootstrap, {topic: {}, other: {}}, PARTITIONS)
    fill(peer, topic, 2)
    with (
        contextlib.closing(KafkaAdminClient(bootstrap_servers=peer.bootstrap)) as admin,
        kind(peer.bootstrap, group, [topic], heartbeat_ms=9_000) as member,
    ):
        wait_until_read([member], 2 * PARTITIONS)
        (described,) = admin.describe_groups([group]).values()
        (one,) = described["members"]
        (removed,) = admin.remove_group_members(group, [MemberToRemove(member_id=one["member_id"])]).values()
        assert removed.__name__ == "NoError"
        member.subscribe([topic, other])
        member.wait_for(lambda member: len(member.assigned) == 2 * PARTITIONS, "both topics")
        # Before it, a leader may have joined once more, for the metadata that it lacked at first.
        assert [change.kind for change in member.history if change.places][-2:] == ["lost", "assigned"]
        fill(peer, topic, 1, start=2)
        member.wait_for(lambda member: sum(row.offset == 2 for row in member.rows) == PARTITIONS, "new records")


def test_a_restart_of_the_broker(peer: Peer) -> None:
    """Ended cleanly, and killed: the members stay in their group, and read on.

    Without kafka-python, which leaves sockets behind when it cannot connect.
    """
    topic = group = "restarted"
    create_topics(peer.bootstrap, {topic: {}}, PARTITIONS)
    fill(peer, topic, 3)
    with ExitStack() as open_members:
        members: list[Member] = []
        for kind in (LibrdkafkaMember, AioKafkaMember, LibrdkafkaMember):
            members.append(open_members.enter_context(kind(peer.bootstrap, group, [topic])))
            wait_until_settled(members, places(topic))
        check_once(members, topic, 3)
        for rows, end in ((6, peer.broker.stop), (9, peer.broker.kill)):
            for member in members:
                member.commit()
            histories = [list(member.history) for member in members]
            end()
            peer.broker.start()
            fill(peer, topic, 3, start=rows - 3)
            check_once(members, topic, rows)
            assert [member.history for member in members] == histories
            for member in members:
                assert member.committed() == dict.fromkeys(member.assigned, rows - 3)
                member.commit()
                assert member.committed() == dict.fromkeys(member.assigned, rows)


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.library)
def test_seek_by_time(peer: Peer, kind: type[Member]) -> None:
    """A member reads again from a time on; what it commits then is where the next one begins."""
    topic = group = f"by-time-{kind.library}"
    create_topics(peer.bootstrap, {topic: {}}, PARTITIONS)
    fill(peer, topic, 6)
    with kind(peer.bootstrap, group, [topic]) as member:
        check_once([member], topic, 6)
        assert member.seek_to_time(FIRST_MS + 3001) == dict.fromkeys(places(topic), 4)
        member.wait_for(lambda member: len(member.rows) >= (6 + 2) * PARTITIONS, "what came after that time")
        assert sorted(row.offset for row in member.rows[6 * PARTITIONS :]) == sorted([4, 5] * PARTITIONS)
        assert member.seek_to_time(FIRST_MS + 1_000_000) == dict.fromkeys(places(topic), 6)
        assert member.seek_to_time(FIRST_MS - 1) == dict.fromkeys(places(topic), 0)
        member.wait_for(lambda member: len(member.rows) >= (6 + 2 + 6) * PARTITIONS, "all of it again")
        assert len(member.rows) == (6 + 2 + 6) * PARTITIONS


def test_what_admins_see_and_do(peer: Peer) -> None:
    """Lists, descriptions, offsets, by librdkafka, kafka-python and aiokafka: of a group with members, without, of none."""
    topic, group, none = "administered", "administered", "no-such-group"
    create_topics(peer.bootstrap, {topic: {}}, PARTITIONS)
    fill(peer, topic, 4)
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    python_admin = KafkaAdminClient(bootstrap_servers=peer.bootstrap)
    target = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]

    def offsets() -> dict[int, int]:
        """What all three say."""
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        by_librdkafka = {each.partition: each.offset for each in future.result(PATIENCE_S).topic_partitions}
        by_python = {place.partition: each.offset for place, each in python_admin.list_group_offsets(group)[group].items()}
        by_aiokafka = asyncio.run(aio_offsets(peer.bootstrap, group))
        assert by_librdkafka == by_python == by_aiokafka
        return by_librdkafka

    def refused(call: Callable[[], dict[Any, Any]]) -> str:
        with pytest.raises(KafkaException) as raised:
            for future in call().values():
                future.result(PATIENCE_S)
        return str(raised.value.args[0].name())

    with contextlib.closing(python_admin):
        with LibrdkafkaMember(peer.bootstrap, group, [topic], client_id="described", instance_id="static") as member:
            check_once([member], topic, 4)
            member.commit()
            assert offsets() == dict.fromkeys(range(PARTITIONS), 4)
            told = admin.describe_consumer_groups([group, none])
            description, unknown = told[group].result(PATIENCE_S), told[none].result(PATIENCE_S)
            assert (description.state, description.partition_assignor) == (ConsumerGroupState.STABLE, "range")
            assert (unknown.state, list(unknown.members)) == (ConsumerGroupState.DEAD, [])
            (one,) = description.members
            assert (one.client_id, one.group_instance_id, one.host) == ("described", "static", "/127.0.0.1")
            assert sorted(place.partition for place in one.assignment.topic_partitions) == list(range(PARTITIONS))
            (by_python,) = python_admin.describe_groups([group]).values()
            assert (by_python["group_state"], by_python["protocol_type"]) == ("Stable", "consumer")
            assert by_python["members"][0]["member_id"] == one.member_id
            (future,) = admin.alter_consumer_group_offsets(target).values()
            (altered,) = future.result(PATIENCE_S).topic_partitions
            assert altered.error.name() == "UNKNOWN_MEMBER_ID"
            assert refused(lambda: admin.delete_consumer_groups([group])) == "NON_EMPTY_GROUP"
            subscribed = python_admin.delete_group_offsets(group, [PythonTopicPartition(topic, 0)])
            assert [error.__name__ for error in subscribed.values()] == ["GroupSubscribedToTopicError"]
        removed = python_admin.remove_group_members(group, [MemberToRemove(group_instance_id="static")])
        assert [error.__name__ for error in removed.values()] == ["NoError"]
        listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(PATIENCE_S).valid
        assert [each.state for each in listed if each.group_id == group] == [ConsumerGroupState.EMPTY]
        assert group in {each["group_id"] for each in python_admin.list_groups()}
        for future in admin.alter_consumer_group_offsets(target).values():
            future.result(PATIENCE_S)
        assert offsets() == {0: 1, 1: 4, 2: 4, 3: 4}
        by_time = {PythonTopicPartition(topic, 1): OffsetTimestamp(FIRST_MS + 1500), PythonTopicPartition(topic, 2): 99}
        reset = python_admin.reset_group_offsets(group, by_time)
        assert {place.partition: each["offset"] for place, each in reset.items()} == {1: 2, 2: 4}
        python_admin.delete_group_offsets(group, [PythonTopicPartition(topic, 3)])
        assert offsets() == {0: 1, 1: 2, 2: 4}
        with AioKafkaMember(peer.bootstrap, group, [topic]) as reader:
            wait_until_read([reader], 3 + 2 + 0 + 4)
            assert len(reader.rows) == 9
        for future in admin.delete_consumer_groups([group]).values():
            future.result(PATIENCE_S)
        assert refused(lambda: admin.delete_consumer_groups([group])) == "GROUP_ID_NOT_FOUND"
        assert offsets() == {}


async def aio_offsets(bootstrap: str, group: str) -> dict[int, int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answers = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    return {place.partition: each.offset for place, each in answers.items()}
