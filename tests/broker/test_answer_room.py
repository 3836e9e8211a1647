"""Answers whose elements are larger than what asks for them: there is room for so many bytes, and what comes after is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import produce_request, some_records
from tests.broker.raw import RawClient
from tests.broker.transactions.producers import TransactionalProducer
from tidelog.broker.configs.config_changes import BROKER, TOPIC
from tidelog.broker.quotas import answer_room
from tidelog.model import LATEST
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

ROOM = 20_000
TIMES = 300


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    broker.create_topic("t")
    return broker


@pytest.fixture
def client(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawClient]:
    monkeypatch.setattr(answer_room, "MAX_ANSWER_BYTES", ROOM)
    with broker.client() as client:
        yield client


def answered(codes: list[int], size: int) -> int:
    """Return how many were answered, each of at least `size` bytes; all others came later and were refused."""
    count = codes.count(ErrorCode.NONE)
    assert codes == [ErrorCode.NONE] * count + [ErrorCode.POLICY_VIOLATION] * (TIMES - count)
    assert (count - 1) * size <= ROOM
    return count


def coordinated(client: RawClient) -> None:
    """Have a coordinator of the group g."""
    found = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    assert found.coordinators[0].error_code == ErrorCode.NONE


def test_configs(client: RawClient) -> None:
    for name, kind in (("t", TOPIC), ("1", BROKER)):
        asked = [DescribeConfigsResource(kind, name, None)] * TIMES
        results = client.ask(DescribeConfigsRequest(asked, include_synonyms=True, include_documentation=True), 4).results
        count = answered([one.error_code for one in results], 2000)
        assert all(one.configs == results[0].configs for one in results[:count])
        assert {one.error_message for one in results[count:]} == {"the response is full: ask for the rest in another request"}
        assert {one.resource_name for one in results} == {name}


def test_configs_of_many_things_by_turns(client: RawClient) -> None:
    """What was described once already is the same again, for its own keys and nothing else."""
    asked = [
        DescribeConfigsResource(TOPIC, "t", ["retention.ms"]),
        DescribeConfigsResource(BROKER, "1", ["node.id"]),
        DescribeConfigsResource(TOPIC, "missing", None),
    ] * 30
    results = client.ask(DescribeConfigsRequest(asked), 4).results
    assert [(one.resource_name, one.error_code, [each.name for each in one.configs]) for one in results] == [
        ("t", ErrorCode.NONE, ["retention.ms"]),
        ("1", ErrorCode.NONE, ["node.id"]),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ] * 30
    asked = [DescribeConfigsResource(kind, name, None) for kind, name in ((TOPIC, "t"), (BROKER, "1"), (TOPIC, "missing"))] * 30
    asked.append(DescribeConfigsResource(TOPIC, "t", ["retention.ms"]))
    alone = [client.ask(DescribeConfigsRequest([one]), 4).results[0] for one in (*asked[:3], asked[-1])]
    count = 0
    for number, one in enumerate(client.ask(DescribeConfigsRequest(asked), 4).results):
        if one.error_code != ErrorCode.POLICY_VIOLATION:
            assert one == (alone[3] if number == 90 else alone[number % 3])
            count += 1
    assert 6 < count < 90


def test_a_few_configs_are_answered_whatever_they_take(client: RawClient) -> None:
    asked = [DescribeConfigsResource(TOPIC, "t", None)] * 30
    results = client.ask(DescribeConfigsRequest(asked, include_synonyms=True, include_documentation=True), 4).results
    assert [one.error_code for one in results] == [ErrorCode.NONE] * 30


def test_groups(client: RawClient) -> None:
    coordinated(client)
    protocols = [JoinGroupRequestProtocol("range", b"m" * 1000)]
    joined = client.ask(JoinGroupRequest("g", 30_000, 30_000, "", None, "consumer", protocols), 3)
    given = [SyncGroupRequestAssignment(joined.member_id, b"a" * 1000)]
    synced = client.ask(SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=given), 2)
    assert synced.error_code == ErrorCode.NONE
    groups = client.ask(DescribeGroupsRequest(["g"] * TIMES), 5).groups
    assert 5 < answered([one.error_code for one in groups], 2000) <= 10
    assert [len(one.members[0].member_assignment) for one in groups if not one.error_code] == [1000] * (
        [one.error_code for one in groups].count(0)
    )


def test_producers(client: RawClient) -> None:
    for producer_id in range(10):
        sent = bytes(build_batch_v2(some_records(1), producer=Producer(producer_id, 0, 0)))
        client.ask(produce_request([("t", 0, sent)]), 9)
    partitions = client.ask(DescribeProducersRequest([TopicRequest("t", [0] * TIMES)]), 0).topics[0].partitions
    assert answered([one.error_code for one in partitions], 400) > 1
    assert len(partitions[1].active_producers) == 10


def test_transactions(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("u" * 200, 200)
    with TransactionalProducer(broker.address, "me") as me:
        me.init()
        me.add(*(("u" * 200, partition) for partition in range(200)))
        states = client.ask(DescribeTransactionsRequest(["me"] * TIMES), 0).transaction_states
        assert answered([one.error_code for one in states], 1000) > 1
        assert len(states[1].topics[0].partitions) == 200


def test_lists_of_offsets(client: RawClient) -> None:
    client.ask(produce_request([("t", 0, bytes(build_batch_v2(some_records(1))))]), 9)
    wanted = [ListOffsetsPartition(0, timestamp=LATEST, max_num_offsets=10)] * TIMES
    partitions = client.ask(ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", wanted)]), 0).topics[0].partitions
    assert answered([one.error_code for one in partitions], 80) == ROOM // 80  # The segment's start, and the end.
    assert partitions[ROOM // 80 - 1].old_style_offsets == [1, 0]


class TestOffsets:
    @pytest.fixture(autouse=True)
    def committed(self, client: RawClient) -> None:
        coordinated(client)
        offset = OffsetCommitRequestPartition(0, 7, committed_metadata="m" * 1000)
        answer = client.ask(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[offset])]), 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def test_of_a_group_that_is_named_again_and_again(self, client: RawClient) -> None:
        groups = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * TIMES), 8).groups
        assert 10 < answered([one.error_code for one in groups], 1000) <= 20
        assert [one.topics[0].partitions[0].committed_offset for one in groups if not one.error_code][:10] == [7] * 10

    def test_of_one_group_a_partition_is_answered_once(self, client: RawClient) -> None:
        topics = [OffsetFetchRequestTopics("t", partition_indexes=[0, 1, 0])] * TIMES
        topics += [OffsetFetchRequestTopics("u", partition_indexes=[]), OffsetFetchRequestTopics("v", partition_indexes=[3])]
        (group,) = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)]), 8).groups
        found = [
            (topic.name, [(one.partition_index, one.committed_offset) for one in topic.partitions]) for topic in group.topics
        ]
        assert found == [("t", [(0, 7), (1, -1)]), ("v", [(3, -1)])]
