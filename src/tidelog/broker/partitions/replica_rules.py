"""The replica assignments that a standalone broker accepts, by the rules of Kafka's controller.

| request | answer |
|---|---|
| a replication factor above 1 | INVALID_REPLICATION_FACTOR |
| a manual assignment that lists exactly this broker for each partition, numbered from 0 without gaps | accepted |
| a manual assignment with no broker, a different broker, a duplicate, or a missing partition | INVALID_REPLICA_ASSIGNMENT |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.broker.requests.api_error import ApiError
from tidelog.wire.error_codes import ErrorCode


def check_replication_factor(replication_factor: int) -> None:
    """Raise ApiError for a replication factor that one broker cannot provide."""
    if replication_factor != 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} is not possible: there is only one broker",
        )


def check_replicas(node_id: int, replicas: Sequence[int]) -> None:
    """Raise ApiError unless `replicas` contains exactly this broker."""
    if not replicas:
        reason = "a partition is assigned to no broker"
    elif any(broker != node_id for broker in replicas):
        reason = (
            f"a partition is assigned to an unknown broker: {next(broker for broker in sorted(replicas) if broker != node_id)}"
        )
    elif len(replicas) > 1:
        reason = f"a partition is assigned to broker {node_id} more than once"
    else:
        return
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def check_assignments(node_id: int, assignments: Iterable[tuple[int, Sequence[int]]]) -> int:
    """Check a manual assignment, given as pairs of partition and replicas, and return its number of partitions. Raises
    ApiError.
    """
    seen: set[int] = set()
    for partition, replicas in assignments:
        if partition in seen:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} is assigned more than once")
        check_replicas(node_id, replicas)
        seen.add(partition)
    if seen != set(range(len(seen))):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without gaps")
    return len(seen)
