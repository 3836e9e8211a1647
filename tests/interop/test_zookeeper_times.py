"""LogAppendTime over changes of leader in a cluster of ZooKeeper, KIP-32's own case, with brokers of the time of the document.

A leader of Kafka's stamps by its clock, whatever the log says; ours never goes back. Followers keep what a leader has stamped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import IS_SOAK
from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.shifted_clock import ShiftedClock
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.migration import judge
from tests.patience import PATIENCE_S

KAFKAS, OURS = 1, 2
TOPIC = "appended"
HOUR_MS = 3_600_000

RELEASES = [("kafka-0.10.0.1", "0.10.0.1", 1), ("2.4.1", "2.4", 2)]
"""Of the other broker; the protocol, and its message format."""


@pytest.mark.parametrize(("release", "protocol", "magic"), RELEASES if IS_SOAK else RELEASES[:1])
def test_a_new_leader_whose_clock_is_slow(tmp_path: Path, release: str, protocol: str, magic: int) -> None:
    """KIP32-17 to KIP32-22: m0 by broker 0 at T0; broker 1 leads, an hour behind it, and m1 is not earlier than m0."""
    properties = {"inter.broker.protocol.version": protocol, "log.message.format.version": protocol, "log.retention.ms": "-1"}
    clock = ShiftedClock(tmp_path / "clock")
    with ZookeeperCluster(tmp_path, release=release, zookeeper=release, properties=properties) as cluster:
        kafka = cluster.broker(KAFKAS)
        member = TidelogMember(cluster, OURS)
        member.program = clock.arguments
        ports = {KAFKAS: kafka.port, OURS: member.port}
        try:
            member.start()
            with cluster.client() as client:
                admin = ZookeeperAdmin(client)
                admin.create(TOPIC, [[KAFKAS, OURS]], message_timestamp_type="LogAppendTime")
                admin.wait_for(TOPIC, [KAFKAS, OURS], KAFKAS)

                def lead(leader: int) -> None:
                    """Have it lead, once both know that all is committed: before v2 followers cut what they do not know to be."""
                    end = sum(1 for _ in old_wire.records_of(judge.bytes_of(kafka.data, TOPIC, 0)))
                    for data in (kafka.data, member.data):
                        path, line = data / "replication-offset-checkpoint", f"{TOPIC} 0 {end}\n"
                        wait_until(lambda path=path, line=line: line in path.read_text(), f"{path}: {line}", PATIENCE_S)  # type: ignore[misc]
                    admin.move(TOPIC, [leader, KAFKAS + OURS - leader])

                def produce(leader: int, value: bytes) -> int:
                    """Append it, and return its time."""
                    offset = old_wire.produce(lambda: ports[leader], TOPIC, [value], magic=magic)
                    version = old_wire.FETCH[magic]
                    (record,) = old_wire.records_of(
                        bytes(old_wire.fetch(lambda: ports[leader], TOPIC, offset, version=version).records or b"")
                    )
                    assert (record.offset, record.value, record.timestamp_type) == (offset, value, 1)
                    return record.timestamp

                t0 = produce(KAFKAS, b"m0")
                clock.set(-HOUR_MS)
                lead(OURS)
                assert produce(OURS, b"m1") == t0, "the later of its clock and the last time"
                clock.set(HOUR_MS)
                ahead = produce(OURS, b"m2")
                assert ahead > t0 + HOUR_MS // 2, "its own clock has passed it"
                lead(KAFKAS)
                behind = produce(KAFKAS, b"m3")
                assert t0 < behind < ahead, "Kafka's broker goes by its clock alone"
                clock.set(-HOUR_MS)
                lead(OURS)
                assert produce(OURS, b"m4") == behind, "the last time in the log, whoever gave it"
                wait_until(
                    lambda: judge.bytes_of(kafka.data, TOPIC, 0) == judge.bytes_of(member.data, TOPIC, 0),
                    "followers keep the leader's bytes",
                    PATIENCE_S,
                )
        finally:
            member.kill()
