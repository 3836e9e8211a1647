"""ElectLeaders (43): elects the preferred replica as leader, or any live replica (unclean election) (KIP-183, KIP-460).

A standalone broker leads every partition that it could load:

| a partition | answer |
|---|---|
| is led here | ELECTION_NOT_NEEDED; left out if all partitions were requested |
| could not be loaded | PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE for an unclean election |
| is unknown | UNKNOWN_TOPIC_OR_PARTITION |
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.broker.handling.access import cluster, whole
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import TopicPartition
from tidelog.security.acl import Operation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ACCESS = whole(
    cluster(Operation.ALTER),
    refused=lambda message, code: ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(one.topic, [PartitionResult(partition, code) for partition in one.partitions])
            for one in message.topic_partitions or ()
        ],
    ),
)

PREFERRED = 0
UNCLEAN = 1

_WHY = {
    ErrorCode.ELECTION_NOT_NEEDED: "this broker, the only one, already leads the partition",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the partition's only replica could not be loaded",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "the partition's only replica could not be loaded",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker has no such partition",
}


def handle(node: Node, message: ElectLeadersRequest, request: Request) -> Work:
    if message.election_type not in (PREFERRED, UNCLEAN):
        yield from discarded(message)
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    results = []
    if message.topic_partitions is None:
        for view in node.topics.all():
            offline = [one.partition for one in view.partitions if one.error_code]
            if offline:
                results.append(ReplicaElectionResult(view.name, list(_results(node, message, view.name, offline))))
            yield None
        return ElectLeadersResponse(replica_election_results=results)
    for topic in message.topic_partitions:
        made = yield from slowly(_results(node, message, topic.topic, topic.partitions), 16)
        results.append(ReplicaElectionResult(topic.topic, made))
        if not len(results) % 16:
            yield None
    yield from discarded(message)
    return ElectLeadersResponse(replica_election_results=results)


def _results(node: Node, message: ElectLeadersRequest, topic: str, partitions: list[int]) -> Iterator[PartitionResult]:
    for partition in partitions:
        refusal = node.leadership.refusal(TopicPartition(topic, partition))
        if not refusal:
            code = ErrorCode.ELECTION_NOT_NEEDED
        elif refusal is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = refusal
        elif message.election_type == PREFERRED:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        yield PartitionResult(partition, code, _WHY[code])


API = Api(ElectLeadersRequest, ElectLeadersResponse, Versions(0, 2), ACCESS, handle)
