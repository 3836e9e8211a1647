"""A broker of ours under controllers of old releases, at the protocol of each: Kafka 0.9.0.1, 0.10.0.1 and 2.4.1.

Topics are made as the tools of that time did it, records come by Produce of that time, and what lies in the folders is judged:
the bytes of each replica, and the formats of its batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.examples import IS_SOAK
from tests.interop.gate import first_of
from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.java_members import JavaClients
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import KafkaBroker, ZookeeperCluster
from tests.patience import PATIENCE_S
from tidelog.broker.settings.protocol_version import ProtocolVersion
from tidelog.model import OFFSETS_TOPIC
from tidelog.records.compression import Codec

KAFKAS, OURS = 1, 2
TOPIC = "orders"

RELEASES = [("kafka-0.9.0.1", "0.9.0.1", 0), ("kafka-0.10.0.1", "0.10.0.1", 1), ("2.4.1", "2.4", 2)]
"""Of the controller; the protocol, and the newest message format that it lets brokers write."""
OTHERS = [
    ("kafka-0.10.0.1", "0.9.0.1", 0),
    ("2.4.1", "0.9.0.1", 0),
    ("2.4.1", "0.10.2", 1),
    ("2.4.1", "0.11.0", 2),
    ("3.9.1", "2.7", 2),
]
"""Left to `make soak`: new code that speaks as the old one."""


class Pair:
    """A broker of Kafka's, which is the controller, and one of ours."""

    def __init__(self, kafka: KafkaBroker, member: TidelogMember, admin: ZookeeperAdmin, magic: int) -> None:
        self.kafka = kafka
        self.member = member
        self.admin = admin
        self.magic = magic
        """The newest message format that the protocol lets brokers write."""
        self.sent: dict[int, list[bytes]] = {0: [], 1: []}
        """By partition: all that was acknowledged."""

    def port(self, partition: int) -> int:
        """Where the leader listens."""
        state = self.admin.state(TOPIC, partition)
        return self.member.port if state is not None and state.leader == OURS else self.kafka.port

    def produce(self, text: str, magic: int | None = None, codec: Codec = Codec.NONE) -> None:
        """Append to both partitions, in several batches, with acks=all."""
        for partition, sent in self.sent.items():
            for number in range(3):
                values = [f"{text} {partition} {number} {i}".encode() for i in range(40)]
                old_wire.produce(
                    lambda partition=partition: self.port(partition),  # type: ignore[misc]
                    TOPIC,
                    values,
                    magic=self.magic if magic is None else magic,
                    partition=partition,
                    codec=codec,
                )
                sent += values

    def check(self) -> None:
        """All that was acknowledged is read once, in its order; replicas are the same byte for byte."""
        for partition, sent in self.sent.items():
            version = old_wire.FETCH[self.magic]
            read = old_wire.read_all(
                lambda partition=partition: self.port(partition), TOPIC, version=version, partition=partition
            )  # type: ignore[misc]
            assert [record.value for record in read] == sent
            wait_until(
                lambda partition=partition: self.data(self.kafka.data, partition) == self.data(self.member.data, partition),  # type: ignore[misc]
                f"equal replicas of {TOPIC}-{partition}",
                PATIENCE_S,
            )
            assert max(old_wire.magics(self.data(self.member.data, partition))) == self.magic

    def data(self, folder: Path, partition: int) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((folder / f"{TOPIC}-{partition}").glob("*.log")))

    def settle(self) -> None:
        """Wait until both know that all is committed: before KIP-101 a replica cuts what it does not know to be."""
        for folder in (self.kafka.data, self.member.data):
            for partition, sent in self.sent.items():
                path, line = folder / "replication-offset-checkpoint", f"{TOPIC} {partition} {len(sent)}\n"
                wait_until(lambda path=path, line=line: line in path.read_text(), f"{path} to have {line}", PATIENCE_S)  # type: ignore[misc]

    def wait_for(self, isr: list[int], leaders: tuple[int, int] | None = None) -> None:
        for partition in (0, 1):
            self.admin.wait_for(TOPIC, isr, None if leaders is None else leaders[partition], partition)


@contextmanager
def pair(folder: Path, release: str, protocol: str, magic: int) -> Iterator[Pair]:
    zookeeper = release if release.startswith("kafka-") else "2.4.1"
    properties = {
        "inter.broker.protocol.version": protocol,
        # Kafka's default is the newest format, and then it does not start.
        "log.message.format.version": protocol,
        "delete.topic.enable": "true",
        "log.retention.ms": "-1",  # The records are of 2023.
    }
    with ZookeeperCluster(folder, release=release, zookeeper=zookeeper, properties=properties) as cluster:
        # It stays the controller through `alone`, however long that takes: a controller of 0.9 whose session had ended in the
        # pause once did not notice that ours left just after.
        kafka = cluster.broker(KAFKAS, {"zookeeper.session.timeout.ms": "60000"})
        member = TidelogMember(cluster, OURS)
        try:
            member.start()
            with cluster.client() as client:
                yield Pair(kafka, member, ZookeeperAdmin(client), magic)
        finally:
            member.kill()


@pytest.mark.parametrize(
    ("release", "protocol", "magic"),
    RELEASES + OTHERS if IS_SOAK else first_of(*RELEASES, why="0.10.0.1: test_migration; 2.4.1: test_zookeeper_faults"),
)
def test_release(tmp_path: Path, release: str, protocol: str, magic: int) -> None:
    with pair(tmp_path, release, protocol, magic) as both:
        both.admin.create(TOPIC, [[KAFKAS, OURS], [OURS, KAFKAS]])
        both.wait_for([KAFKAS, OURS], (KAFKAS, OURS))
        both.produce("first")
        both.produce("older", magic=0, codec=Codec.GZIP)
        both.check()
        both.settle()

        # Killed: the leader takes it out of the in-sync replicas, and the other one leads.
        both.member.kill()
        both.wait_for([KAFKAS], (KAFKAS, KAFKAS))
        both.produce("without ours")
        both.member.start()
        both.wait_for([KAFKAS, OURS])
        both.check()
        both.settle()

        # The other way round.
        for partition in (0, 1):
            both.admin.move(TOPIC, [OURS, KAFKAS], partition)
        both.produce("ours leads")
        both.check()
        both.settle()
        if not ProtocolVersion(protocol).has_alter_partition:
            alone(both)

        # In order: leaders move before the end.
        assert both.member.stop() == 0
        both.wait_for([KAFKAS], (KAFKAS, KAFKAS))
        both.produce("gone")
        both.admin.wait_until_missed(OURS, lambda _: both.kafka.port)
        both.member.start()
        both.wait_for([KAFKAS, OURS])
        both.check()
        both.admin.delete(TOPIC)
        wait_until(lambda: not list(both.member.data.glob(f"{TOPIC}-?")), "the deleted topic's folders to go", PATIENCE_S)


def alone(both: Pair) -> None:
    """Ours leads all, and the controller does not answer: ours changes the in-sync replicas itself."""
    both.kafka.pause()
    try:
        both.produce("ours alone")
        both.wait_for([OURS], (OURS, OURS))
    finally:
        both.kafka.go_on()
    both.wait_for([KAFKAS, OURS])
    both.check()


def test_groups_move_between_releases(tmp_path: Path) -> None:
    """What a coordinator of ours writes, one of 0.9.0.1 reads, and the other way round: a group goes on where it was."""
    with pair(tmp_path, "kafka-0.9.0.1", "0.9.0.1", 0) as both, JavaClients() as clients:
        # As many as `offsets.topic.num.partitions` says: 0.9.0.1 reads that once, before the topic is there. The group's is 1.
        both.admin.create(OFFSETS_TOPIC, [[OURS, KAFKAS]] * 2, **{"cleanup.policy": "compact"})
        both.admin.create(TOPIC, [[KAFKAS, OURS], [OURS, KAFKAS]])
        both.wait_for([KAFKAS, OURS], (KAFKAS, OURS))
        both.admin.wait_for(OFFSETS_TOPIC, [KAFKAS, OURS], OURS, 1)
        bootstrap = f"{both.kafka.bootstrap},{both.member.bootstrap}"
        done = 0
        for coordinator in (OURS, KAFKAS, OURS):
            both.admin.move(OFFSETS_TOPIC, [coordinator, KAFKAS + OURS - coordinator], 1)
            both.produce(f"for {coordinator}")
            member = clients.member("0.9.0.1", bootstrap, "group", [TOPIC], client_id=f"member-{coordinator}-{done}")
            try:
                wanted = sorted(value for sent in both.sent.values() for value in sent[done:])
                member.wait_for(lambda one, wanted=wanted: len(one.rows) >= len(wanted), f"{len(wanted)} records")  # type: ignore[misc]
                assert sorted(row.value for row in member.rows) == wanted
                member.commit()
            finally:
                member.close()
            done = len(both.sent[0])
            path = both.member.data / f"{OFFSETS_TOPIC}-1"
            assert old_wire.magics(b"".join(one.read_bytes() for one in sorted(path.glob("*.log")))) == [0]
