"""Before KIP-33: retention, rolling and look-ups go by the files' own times, and a replica that moves to another broker has new
files.

On Kafka 0.9.0.1 itself, with a broker of ours as another new replica: records of message format v0 have no times, so that ours
goes by files there as well, as Kafka does to this day. Replicas with times keep them: `test_times_in_a_cluster`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.broker.raw import RawClient
from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.patience import PATIENCE_S
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

RELEASE = "kafka-0.9.0.1"
FROM, TO, OURS = 1, 2, 3
HOUR_S = 3600
ROLL_S = 16


def offsets_before(port: int, topic: str, time_ms: int) -> list[int]:
    """Ask a leader for the offset of a time as consumers of 0.9 do: where the newest segment begins that is as old as that."""
    request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=time_ms)])])
    answers = []

    def is_answered() -> bool:
        with RawClient(("127.0.0.1", port)) as client:
            (answer,) = client.ask(request, 0).topics[0].partitions
        answers.append(answer)
        return answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER  # It may not have heard yet that it leads.

    wait_until(is_answered, f"the leader of {topic}", PATIENCE_S)
    assert answers[-1].error_code == 0
    return list(answers[-1].old_style_offsets)


def test_a_moved_replica_has_other_times(tmp_path: Path) -> None:
    properties = {
        "inter.broker.protocol.version": "0.9.0.1",
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "0",
    }
    with ZookeeperCluster(tmp_path, release=RELEASE, zookeeper=RELEASE, properties=properties) as cluster:
        folders = {node_id: cluster.broker(node_id).data / "moved-0" for node_id in (FROM, TO)}
        member = TidelogMember(cluster, OURS, {"log.initial.task.delay.ms": "500"})
        folders[OURS] = member.data / "moved-0"
        try:
            member.start()
            with cluster.client() as client:
                admin = ZookeeperAdmin(client)
                admin.create("moved", [[FROM]], **{"segment.bytes": "20000", "retention.ms": "-1"})
                admin.wait_for("moved", [FROM], FROM)
                for number in range(5):
                    values = [f"{number} {i}".encode().ljust(900) for i in range(20)]
                    old_wire.produce(lambda: cluster.brokers[FROM].port, "moved", values, magic=0)
                segments = sorted(folders[FROM].glob("*.log"))
                assert len(segments) > 2
                # Two hours pass; the newest segment is written to all the time.
                long_ago = time.time() - 2 * HOUR_S
                for path in segments[:-1]:
                    os.utime(path, (long_ago, long_ago))
                admin.reassign("moved", [FROM, TO, OURS])
                admin.wait_for("moved", [FROM, TO, OURS])
                first = segments[0].name
                for folder in folders.values():
                    assert (folder / first).read_bytes() == segments[0].read_bytes()
                assert all((folders[one] / first).stat().st_mtime > time.time() - HOUR_S for one in (TO, OURS))
                # An hour ago there were all segments but the last: so says the replica that was there, and no other.
                ports = {**{one: cluster.brokers[one].port for one in (FROM, TO)}, OURS: member.port}
                found = {}
                for leader in (TO, OURS, FROM):
                    admin.move("moved", [leader, *(one for one in ports if one != leader)])
                    found[leader] = offsets_before(ports[leader], "moved", int((time.time() - HOUR_S) * 1000))
                assert found == {FROM: [int(segments[-2].stem)], TO: [], OURS: []}
                admin.alter("moved", **{"segment.bytes": "20000", "retention.ms": str(HOUR_S * 1000)})
                wait_until(
                    lambda: not (folders[FROM] / first).exists(), "retention where the replica has always been", PATIENCE_S
                )
                # The same records, as old as there: kept, by a release that takes the copy's time for theirs.
                assert all((folders[one] / first).exists() for one in (TO, OURS))
        finally:
            member.kill()


@pytest.mark.thorough("waits for segments to grow old; the test above has the same replica moved")
def test_a_moved_replica_rolls_later(tmp_path: Path) -> None:
    """Before KIP-33 a segment's age is its file's: the same record rolls it where it has always been, and not the copy."""
    properties = {"inter.broker.protocol.version": "0.9.0.1"}
    with ZookeeperCluster(tmp_path, release=RELEASE, zookeeper=RELEASE, properties=properties) as cluster:
        folders = [cluster.broker(node_id).data / "rolled-0" for node_id in (FROM, TO)]
        with cluster.client() as client:
            admin = ZookeeperAdmin(client)
            admin.create("rolled", [[FROM]], **{"segment.ms": str(ROLL_S * 1000)})
            admin.wait_for("rolled", [FROM], FROM)
            old_wire.produce(lambda: cluster.brokers[FROM].port, "rolled", [b"first"], magic=0)
            rolls_at = time.monotonic() + ROLL_S
            wait_until(lambda: time.monotonic() > rolls_at - ROLL_S / 2, "a segment of half the age", PATIENCE_S)
            admin.reassign("rolled", [FROM, TO])
            admin.wait_for("rolled", [FROM, TO])
            wait_until(lambda: time.monotonic() > rolls_at, "the age at which a segment is rolled", PATIENCE_S)
            old_wire.produce(lambda: cluster.brokers[FROM].port, "rolled", [b"second"], magic=0)
            sizes = [sum(path.stat().st_size for path in folder.glob("*.log")) for folder in folders]
            wait_until(lambda: sizes[0] == sum(path.stat().st_size for path in folders[1].glob("*.log")), "the copy", PATIENCE_S)
            assert [len(list(folder.glob("*.log"))) for folder in folders] == [2, 1]
