"""Which replicas a partition may be given, where the only broker is this one: the rules of Kafka's controller.

| what is asked for | answer |
|---|---|
| a replication factor above 1 | INVALID_REPLICATION_FACTOR |
| replicas by hand: this broker, once, for every partition from the first to the last | taken |
| nobody, another broker, a broker twice; a partition left out or named twice | INVALID_REPLICA_ASSIGNMENT |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.broker.api_error import ApiError
from tidelog.wire.error_codes import ErrorCode


def check_replication_factor(replication_factor: int) -> None:
    """Raise ApiError unless one broker can do that."""
    if replication_factor != 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replication_factor} is not possible: there is only one broker",
        )


def check_replicas(node_id: int, replicas: Sequence[int]) -> None:
    """Raise ApiError unless `replicas` are this broker."""
    if not replicas:
        reason = "a partition without a replica"
    elif any(broker != node_id for broker in replicas):
        reason = f"no broker {next(broker for broker in sorted(replicas) if broker != node_id)}"
    elif len(replicas) > 1:
        reason = f"broker {node_id} is named more than once for a partition"
    else:
        return
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def check_assignments(node_id: int, assignments: Iterable[tuple[int, Sequence[int]]]) -> int:
    """Return how many partitions are assigned, as pairs of partition and replicas, from 0 on. Raises ApiError."""
    seen: set[int] = set()
    for partition, replicas in assignments:
        if partition in seen:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} is assigned more than once")
        check_replicas(node_id, replicas)
        seen.add(partition)
    if seen != set(range(len(seen))):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without gaps")
    return len(seen)
