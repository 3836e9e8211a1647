"""Apache Kafka's own clients of six releases, from 0.9.0 on: beside each other in one group, and with transactions.

`TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Kafka instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.interop.gate import first_of
from tests.interop.peers import Peer, served
from tests.kafka import numbered_rows
from tests.kafka.clients import consume, wait_until_decided
from tests.kafka.group_members import AioKafkaMember, LibrdkafkaMember, Member, Place, wait_until_settled
from tests.kafka.java import wait_until
from tests.kafka.java_members import MEMBER_RELEASES, TRANSACTION_RELEASES, JavaClientError, JavaClients
from tests.patience import PATIENCE_S

PARTITIONS = 6
SESSION_MS = 10_000
"""Who has no time for longer loses what it has read and not committed; who goes without a word is waited for as long."""

fill = partial(numbered_rows.fill, partitions=PARTITIONS)
places = partial(numbered_rows.places, partitions=PARTITIONS)
check_once = partial(numbered_rows.check_once, partitions=PARTITIONS)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("java-groups"), {"group.initial.rebalance.delay.ms": "0"}) as peer:
        yield peer


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with JavaClients() as clients:
        yield clients


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {Place(each.topic, each.partition): each.offset for each in future.result(PATIENCE_S).topic_partitions}


@pytest.mark.parametrize("first", first_of("0.9.0.1", "4.4.0", why="the same members in the other order"))
def test_releases_share_a_group(peer: Peer, java: JavaClients, first: str) -> None:
    """One member of each release, joining from old to new and the other way round; then they go in that order."""
    topic = group = f"releases-from-{first}"
    peer.create_topics({topic: {}}, PARTITIONS)
    releases = MEMBER_RELEASES if first == MEMBER_RELEASES[0] else tuple(reversed(MEMBER_RELEASES))
    rows = 0
    with ExitStack() as open_members:
        members: list[Member] = []
        for release in releases:
            member = java.member(release, peer.bootstrap, group, [topic], assignors=["range"], session_timeout_ms=SESSION_MS)
            members.append(open_members.enter_context(member))
            fill(peer, topic, 2, start=rows)
            rows += 2
            wait_until_settled(members, places(topic), PATIENCE_S)
        check_once(members, topic, rows)
        assert all(len(member.assigned) == 1 for member in members)
        for gone in range(len(members) - 1):
            members[gone].close()
            fill(peer, topic, 1, start=rows)
            rows += 1
            wait_until_settled(members[gone + 1 :], places(topic), PATIENCE_S)
        check_once(members, topic, rows)
        members[-1].close()
    assert committed(peer.bootstrap, group) == dict.fromkeys(places(topic), rows)


def test_cooperative_and_with_others(peer: Peer, java: JavaClients) -> None:
    """Cooperative members of Java and librdkafka, a static one that goes and comes; then eager ones, with aiokafka."""
    topic = group = "cooperative"
    peer.create_topics({topic: {}}, PARTITIONS)
    fill(peer, topic, 3)
    cooperative = {"assignors": ["cooperative-sticky"]}
    with ExitStack() as open_members:
        oldest = open_members.enter_context(java.member("2.4.1", peer.bootstrap, group, [topic], **cooperative))
        wait_until_settled([oldest], places(topic), PATIENCE_S)
        # It may take a while until it is back: nobody is to give its partitions away before.
        static = {"instance_id": "static", "client_id": "static", "session_timeout_ms": 60_000} | cooperative
        newest = open_members.enter_context(java.member("4.4.0", peer.bootstrap, group, [topic], **static))
        wait_until_settled([oldest, newest], places(topic), PATIENCE_S)
        other = open_members.enter_context(LibrdkafkaMember(peer.bootstrap, group, [topic], assignors=["cooperative-sticky"]))
        wait_until_settled([oldest, newest, other], places(topic), PATIENCE_S)
        fill(peer, topic, 3, start=3)
        check_once([oldest, newest, other], topic, 6)
        # Nobody gave everything away.
        assert all(len(change.places) < PARTITIONS for change in oldest.history if change.kind == "revoked")
        had, history = set(newest.assigned), list(oldest.history)
        newest.close()
        again = open_members.enter_context(java.member("4.4.0", peer.bootstrap, group, [topic], **static))
        again.wait_for(lambda member: member.assigned == had, "what it had")
        fill(peer, topic, 3, start=6)
        check_once([oldest, newest, other, again], topic, 9)
        assert oldest.history == history
    group = "with-others"
    with ExitStack() as open_members:
        kinds = [
            java.member("0.9.0.1", peer.bootstrap, group, [topic], assignors=["roundrobin", "range"]),
            AioKafkaMember(peer.bootstrap, group, [topic], assignors=["range", "roundrobin"]),
            java.member("3.9.1", peer.bootstrap, group, [topic], assignors=["cooperative-sticky", "range"]),
            LibrdkafkaMember(peer.bootstrap, group, [topic], assignors=["range"]),
        ]
        members = [open_members.enter_context(member) for member in kinds]
        wait_until_settled(members, places(topic), PATIENCE_S)
        check_once(members, topic, 9)


@pytest.mark.parametrize(
    "release",
    [
        TRANSACTION_RELEASES[0],
        *first_of(*reversed(TRANSACTION_RELEASES[1:]), why="releases between the oldest and the newest, with the same requests"),
    ],
)
def test_transactions(peer: Peer, java: JavaClients, release: str) -> None:
    """Committed, aborted, with a group's offsets; then another with its id, which ends what is open and fences the first."""
    topic, group = f"transactions-{release}", f"copier-{release}"
    peer.create_topics({topic: {}}, 2)

    def values(isolation: str, partition: int = 0) -> list[bytes | None]:
        return [row.value for row in consume(peer.bootstrap, topic, partition, isolation=isolation)]

    first = java.producer(release, peer.bootstrap, f"id-{release}")
    first.init()
    first.begin()
    first.send(topic, 0, "one")
    first.send(topic, 1, "one")
    first.send_offsets(group, topic, 0, 5)
    assert first.flush() == [0, 0]
    assert values("read_committed") == []
    assert committed(peer.bootstrap, group) == {}
    assert first.commit() == []
    # Kafka answers before it has told the group's partition.
    wait_until(lambda: committed(peer.bootstrap, group) == {Place(topic, 0): 5}, "the offset of the transaction", PATIENCE_S)
    first.begin()
    first.send(topic, 0, "two")
    first.send_offsets(group, topic, 0, 9)
    assert first.flush() == [2]
    first.abort()
    assert committed(peer.bootstrap, group) == {Place(topic, 0): 5}
    first.begin()
    first.send(topic, 0, "three")
    assert first.commit() == [4]
    first.begin()
    first.send(topic, 0, "four")
    assert first.flush() == [6]
    second = java.producer(release, peer.bootstrap, f"id-{release}")
    second.init()
    with pytest.raises(JavaClientError, match=r"ProducerFenced|InvalidProducerEpoch"):
        first.commit()
    first.close()
    second.begin()
    second.send(topic, 0, "five")
    second.send_offsets(group, topic, 1, 7)
    assert second.commit() == [8]
    second.close()
    wait_until_decided(peer.bootstrap, topic, 2)
    assert values("read_committed") == [b"one", b"three", b"five"]
    assert values("read_uncommitted") == [b"one", b"two", b"three", b"four", b"five"]
    assert values("read_committed", 1) == [b"one"]
    both = {Place(topic, 0): 5, Place(topic, 1): 7}
    wait_until(lambda: committed(peer.bootstrap, group) == both, "the second offset", PATIENCE_S)


def test_a_member_reads_committed_only(peer: Peer, java: JavaClients) -> None:
    """Members of Java and of librdkafka wait before an open transaction, and skip an aborted one."""
    topic = "read-committed"
    peer.create_topics({topic: {}})
    producer = java.producer("4.4.0", peer.bootstrap, "read-committed")
    producer.init()
    with (
        java.member("0.11.0.3", peer.bootstrap, "old", [topic], isolation="read_committed") as old,
        java.member("4.4.0", peer.bootstrap, "new", [topic], isolation="read_committed") as new,
        LibrdkafkaMember(peer.bootstrap, "other", [topic], isolation="read_committed") as other,
    ):
        members: list[Member] = [old, new, other]
        for each in members:
            each.wait_for(lambda member: len(member.assigned) == 1, "the partition")
        for number, ends_well in enumerate((False, True, False, True)):
            producer.begin()
            producer.send(topic, 0, str(number))
            producer.flush()
            (producer.commit if ends_well else producer.abort)()
        for each in members:
            each.wait_for(lambda member: len(member.rows) >= 2, "what was committed")
            assert [(row.offset, row.value) for row in each.rows] == [(2, b"1"), (6, b"3")]
            each.commit()
        # The commit is behind the last record: whether a marker after it counts is the client's choice.
    for group in ("old", "new", "other"):
        assert committed(peer.bootstrap, group)[Place(topic, 0)] in (7, 8)
    producer.close()
