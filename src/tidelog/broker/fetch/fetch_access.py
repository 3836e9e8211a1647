"""Authorizes Fetch, for all partitions of the request's session. A consumer needs READ on each topic, a follower CLUSTER_ACTION
on the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.broker.fetch.fetch_reader import FetchParams, PartitionRead, error_answer
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.authorization.faults import Fault
    from tidelog.broker.authorization.permissions import Permissions
    from tidelog.broker.fetch.fetch_sessions import FetchedPartition
    from tidelog.broker.requests.request import Request


def readable(
    permissions: Permissions, request: Request, wanted: list[FetchedPartition], params: FetchParams
) -> Generator[None, None, tuple[list[FetchedPartition], Sequence[tuple[FetchedPartition, PartitionRead]]]]:
    """Return the partitions that the client may read, and the error results for all others. Partitions with unknown topic ids are
    among those that consumers may read.
    """
    if params.is_follower and permissions.may_cluster(request, Operation.CLUSTER_ACTION):
        return wanted, ()
    allowed: list[FetchedPartition] = []
    denied: list[tuple[FetchedPartition, PartitionRead]] = []
    decided: dict[str, bool] = {}
    times: Counter[str] = Counter()
    for count, one in enumerate(wanted):
        if one.key is not None:
            times[one.key.topic] += 1
        if count % 256 == 255:
            yield None
    for count, one in enumerate(wanted):
        if count % 64 == 63:
            yield None
        may = not params.is_follower
        if may and one.key is not None:
            topic = one.key.topic
            if topic not in decided:
                decided[topic] = permissions.may(request, Operation.READ, ResourceType.TOPIC, topic, count=times[topic])
            may = decided[topic]
        if may:
            allowed.append(one)
        else:
            denied.append(_refused(one, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return allowed if denied else wanted, denied


def failing(
    faults: Iterable[Fault], wanted: list[FetchedPartition]
) -> tuple[list[FetchedPartition], list[tuple[FetchedPartition, PartitionRead]] | None]:
    """Apply faults: return the partitions to read, and the error results for those that must fail. If the results are None, the
    connection must be closed.
    """
    for fault in faults:
        failed = [one for one in wanted if fault.concerns(None if one.key is None else one.key.topic)]
        if failed:
            fault.happened()
            if fault.code is None:
                return wanted, None
            gone = set(map(id, failed))
            return [one for one in wanted if id(one) not in gone], [_refused(one, fault.code) for one in failed]
    return wanted, []


def _refused(one: FetchedPartition, code: ErrorCode) -> tuple[FetchedPartition, PartitionRead]:
    return one, PartitionRead(error_answer(one, code), 0, None, None)
