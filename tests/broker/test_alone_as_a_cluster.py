"""What a broker that is alone answers to those who ask as if it were a cluster: quorum, elections, replicas that move."""

from __future__ import annotations

import uuid
from typing import Any

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tidelog.errors import LogOfflineError
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


def quorum(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest([TopicData(name, [PartitionData(one) for one in partitions]) for name, partitions in topics])


def codes(results: Any) -> list[str]:
    return [ErrorCode(one.error_code).name for one in results]


def test_the_quorum_is_the_broker_itself(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("flights")
    answer = client.ask(quorum(("__cluster_metadata", [0])), 2)
    (partition,) = answer.topics[0].partitions
    (voter,) = partition.current_voters
    assert (answer.error_code, partition.error_code, partition.leader_id, partition.observers) == (0, 0, 1, [])
    assert voter.replica_id == 1 and voter.replica_directory_id != uuid.UUID(int=0)
    assert voter.log_end_offset == partition.high_watermark > 0 and partition.leader_epoch > 0
    assert [(one.node_id, one.listeners[0].port) for one in answer.nodes] == [(1, broker.address[1])]
    broker.create_topic("more")
    later = client.ask(quorum(("__cluster_metadata", [0])), 0).topics[0].partitions[0]
    assert later.high_watermark > partition.high_watermark
    for asked in (quorum(), quorum(("flights", [0])), quorum(("__cluster_metadata", [0, 1]))):
        refused = client.ask(asked, 2)
        for topic in refused.topics:
            assert set(codes(topic.partitions)) == {"UNKNOWN_TOPIC_OR_PARTITION"}
    assert [len(topic.partitions) for topic in refused.topics] == [2]


def test_no_election_is_needed_where_the_broker_leads(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("flights", 3)

    def elect(kind: int, topics: list[TopicPartitions] | None) -> Any:
        with broker.client() as client:
            return client.ask(ElectLeadersRequest(kind, topics), 2)

    asked = [TopicPartitions("flights", [0, 2, 3]), TopicPartitions("none", [0])]
    results = elect(0, asked).replica_election_results
    assert [codes(one.partition_result) for one in results] == [
        ["ELECTION_NOT_NEEDED", "ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"],
        ["UNKNOWN_TOPIC_OR_PARTITION"],
    ]
    assert elect(1, None).replica_election_results == []
    assert elect(7, None).error_code == ErrorCode.INVALID_REQUEST

    def fails() -> None:
        partitions = broker.node.manager._running.partitions
        key = TopicPartition("flights", 1)
        partitions.failed[key] = str(LogOfflineError("gone"))  # type: ignore[assignment]
        del partitions.logs[key]
        broker.node.manager.changed_topics.add("flights")

    broker.on_loop(fails)
    for kind, code in ((0, "PREFERRED_LEADER_NOT_AVAILABLE"), (1, "ELIGIBLE_LEADERS_NOT_AVAILABLE")):
        (result,) = elect(kind, None).replica_election_results
        assert (result.topic, codes(result.partition_result)) == ("flights", [code])
        assert [one.partition_id for one in result.partition_result] == [1]


def test_replicas_stay(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("flights")
    wanted: list[list[int] | None] = [[1], [2], [1, 2], [], [1, 1], None]
    asked = [ReassignableTopic("flights", [ReassignablePartition(0, one)]) for one in wanted]
    answer = client.ask(
        AlterPartitionReassignmentsRequest(topics=[*asked, ReassignableTopic("none", [ReassignablePartition(0, [1])])]), 1
    )
    assert [code for topic in answer.responses for code in codes(topic.partitions)] == [
        "NONE",
        *["INVALID_REPLICA_ASSIGNMENT"] * 4,
        "NO_REASSIGNMENT_IN_PROGRESS",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    for topics in (None, [ListPartitionReassignmentsTopics("flights", [0])]):
        assert client.ask(ListPartitionReassignmentsRequest(topics=topics), 0) == ListPartitionReassignmentsResponse(
            error_message=None
        )
