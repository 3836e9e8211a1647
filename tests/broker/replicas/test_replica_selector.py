"""Which replica a consumer is sent to: the cases of Kafka's ReplicaSelectorTest and ReplicaManagerTest."""

from __future__ import annotations

import pytest

from tidelog.broker.replicas.replica_selector import ReplicaView, preferred_replica

FOLLOWERS = (
    ReplicaView(1, "b", 0, 10, 5.0),
    ReplicaView(2, "b", 0, 12, 4.0),
    ReplicaView(3, "b", 4, 12, 6.0),
    ReplicaView(4, "c", 4, 12, 6.0),
    ReplicaView(5, None, 0, 99, 9.0),
)


@pytest.mark.parametrize(
    ("rack", "offset", "expected"),
    [
        (None, 5, None),
        ("", 5, None),
        ("a", 5, None),  # The leader's own.
        ("z", 5, None),
        ("b", 5, 3),  # As far as 2, and caught up later.
        ("b", 3, 2),  # 3 has that no more.
        ("b", 12, 3),  # The next record to come.
        ("b", 13, None),
        ("c", 3, None),
        ("c", 4, 4),
    ],
)
def test_rack_aware(rack: str | None, offset: int, expected: int | None) -> None:
    assert preferred_replica(rack, "a", FOLLOWERS, offset) == expected


def test_a_leader_without_a_rack_and_equal_replicas() -> None:
    assert preferred_replica("b", None, [FOLLOWERS[0], FOLLOWERS[0]._replace(broker_id=8)], 5) == 8
    assert preferred_replica("b", None, [], 5) is None
