"""Before KIP-33: retention goes by the files' own times, and a replica that is moved to another broker has new files.

On Kafka 0.9.0.1 itself, with a broker of ours as another new replica: records of message format v0 have no times, so that ours
goes by files there as well, as Kafka does to this day. Replicas with times keep them: `test_times_in_a_cluster`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.kafka import old_wire
from tests.kafka.java import wait_until
from tests.kafka.members import TidelogMember
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tests.patience import PATIENCE_S

RELEASE = "kafka-0.9.0.1"
FROM, TO, OURS = 1, 2, 3
HOUR_S = 3600


def test_a_moved_replica_is_kept_for_too_long(tmp_path: Path) -> None:
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
                admin.alter("moved", **{"segment.bytes": "20000", "retention.ms": str(HOUR_S * 1000)})
                wait_until(
                    lambda: not (folders[FROM] / first).exists(), "retention where the replica has always been", PATIENCE_S
                )
                # The same records, as old as there: kept, by a release that takes the copy's time for theirs.
                assert all((folders[one] / first).exists() for one in (TO, OURS))
        finally:
            member.kill()
