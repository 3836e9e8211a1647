"""What clients of a cluster's member get to see: all brokers and topics, by the metadata, not by the member's folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.broker.cluster.fake_plane import Member, member, registered, topic
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["member"]

LATEST = 12


def metadata(broker: Member, *names: str, version: int = LATEST, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    with broker.client() as client:
        answer = client.ask(request, version)
    assert isinstance(answer, MetadataResponse)
    return answer


def partition(broker: Member, name: str = "a", index: int = 0, version: int = LATEST) -> MetadataResponsePartition:
    (found,) = metadata(broker, name, version=version).topics
    assert found.error_code == 0
    one: MetadataResponsePartition = found.partitions[index]
    return one


def described(broker: Member, *, fenced: bool, version: int = 2) -> DescribeClusterResponse:
    with broker.client() as client:
        answer = client.ask(DescribeClusterRequest(include_fenced_brokers=fenced), version)
    assert isinstance(answer, DescribeClusterResponse)
    return answer


def test_brokers_alive_with_the_listener_of_the_client_are_shown(member: Member) -> None:
    assert metadata(member).brokers == []
    assert metadata(member).controller_id == -1
    member.replay(
        registered(1, port=9001),
        registered(2, port=9002, rack="r2"),
        registered(3, "PLAINTEXT", fenced=True),
        registered(4, "INTERNAL"),
    )
    answer = metadata(member)
    assert [(one.node_id, one.host, one.port, one.rack) for one in answer.brokers] == [
        (1, "host1", 9001, None),
        (2, "host2", 9002, "r2"),
    ]
    assert answer.cluster_id == member.node.cluster_id
    # Clients send the controller's requests to any broker that is alive.
    assert {metadata(member).controller_id for _ in range(50)} == {1, 2}
    assert [one.broker_id for one in described(member, fenced=False).brokers] == [1, 2]
    assert [(one.broker_id, one.is_fenced) for one in described(member, fenced=True).brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    member.replay(UnfenceBrokerRecord(3, 3), UnregisterBrokerRecord(2, 2))
    assert [one.broker_id for one in described(member, fenced=False, version=0).brokers] == [1, 3]


def test_all_topics_are_shown_also_those_without_a_replica_here(member: Member) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    member.replay(
        *(registered(number) for number in (1, 2, 3)),
        *topic("b", ([2, 3], [2], 2), topic_id=second),
        *topic("a", ([1, 2], [2, 1], 1), ([2, 3], [3, 2], 3), topic_id=first),
    )
    answer = metadata(member)
    assert [(one.name, one.topic_id) for one in answer.topics] == [("a", first), ("b", second)]
    assert answer.topics[0].partitions == [
        MetadataResponsePartition(0, 0, 1, 5, [1, 2], [2, 1], []),
        MetadataResponsePartition(0, 1, 3, 5, [2, 3], [3, 2], []),
    ]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in (second, uuid.UUID(int=5))])
    with member.client() as client:
        by_id = client.ask(request, LATEST).topics
    assert [(one.name, one.error_code) for one in by_id] == [("b", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize(("version", "code"), [(0, "REPLICA_NOT_AVAILABLE"), (1, "NONE"), (12, "NONE")])
def test_replicas_of_fenced_and_unknown_brokers_are_offline(member: Member, version: int, code: str) -> None:
    member.replay(registered(1), registered(2, fenced=True), registered(4, "INTERNAL"), *topic("a", ([1, 2, 3, 4], [1, 2], 1)))
    one = partition(member, version=version)
    assert ErrorCode(one.error_code).name == code
    assert one.leader_id == 1
    assert (one.replica_nodes, one.isr_nodes) == (([1], [1]) if version == 0 else ([1, 2, 3, 4], [1, 2]))
    assert one.offline_replicas == ([2, 3, 4] if version >= 5 else [])


def test_a_replica_is_offline_whose_directory_is(member: Member) -> None:
    one, other = uuid.uuid4(), uuid.uuid4()
    records = topic("a", ([1, 2, 3, 5, 6], [1], 1))
    records[1].directories = [one, other, LOST, UNASSIGNED, MIGRATING]  # type: ignore[attr-defined]
    member.replay(*(registered(number, log_dirs=(one,)) for number in (1, 2, 3, 5, 6)), *records)
    assert partition(member).offline_replicas == [2, 3]
    member.replay(BrokerRegistrationChangeRecord(2, 2, log_dirs=[one, other]))
    assert partition(member).offline_replicas == [3]


@pytest.mark.parametrize(
    ("leader", "code"), [(-1, "LEADER_NOT_AVAILABLE"), (9, "LEADER_NOT_AVAILABLE"), (4, "LISTENER_NOT_FOUND")]
)
def test_a_partition_without_a_leader_that_clients_reach(member: Member, leader: int, code: str) -> None:
    member.replay(registered(1), registered(4, "INTERNAL"), *topic("a", ([1, 4], [4], leader)))
    one = partition(member)
    assert (ErrorCode(one.error_code).name, one.leader_id, one.leader_epoch, one.isr_nodes) == (code, -1, 5, [4])
    assert ErrorCode(partition(member, version=5).error_code) is ErrorCode.LEADER_NOT_AVAILABLE


def test_only_what_changed_is_made_again(member: Member) -> None:
    first = uuid.uuid4()
    member.replay(registered(1), registered(2), *topic("a", ([1, 2], [1, 2], 1), topic_id=first), *topic("b", ([1], [1], 1)))

    def kept(name: str) -> tuple[object, MetadataResponseTopic]:
        view = member.node.topics.get(name)
        assert view is not None
        return view, member.node.topics.described(view, member.running.listeners[0], LATEST)

    before = member.on_loop(lambda: (kept("a"), kept("b")))
    member.replay(PartitionChangeRecord(0, first, leader=2))
    a, b = member.on_loop(lambda: (kept("a"), kept("b")))
    assert b[0] is before[1][0] and b[1] is before[1][1]
    assert a[0] is not before[0][0]
    assert (a[1].partitions[0].leader_id, a[1].partitions[0].leader_epoch) == (2, 6)
    member.replay(registered(2, fenced=True))
    c = member.on_loop(lambda: kept("a"))
    assert c[0] is a[0] and c[1].partitions[0].offline_replicas == [2]


def test_a_name_gets_another_topic(member: Member) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    member.replay(registered(1), *topic("a", ([1], [1], 1), topic_id=first))
    assert metadata(member).topics[0].topic_id == first
    member.replay(RemoveTopicRecord(first))
    assert metadata(member).topics == []
    assert member.on_loop(lambda: member.node.topics.by_id(first)) is None
    assert metadata(member, "a").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member.replay(*topic("a", ([1], [1], 1), ([1], [1], 1), topic_id=second))
    (found,) = metadata(member, "a").topics
    assert (found.topic_id, len(found.partitions)) == (second, 2)


def test_a_topic_that_somebody_uses_is_asked_for_once_until_the_controller_answers(member: Member) -> None:
    member.replay(registered(1))
    for _ in range(2):
        (one,) = metadata(member, "new", create=True).topics
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (sent,) = member.plane.forwarded
    assert sent[1] == "127.0.0.1"
    assert metadata(member, "no such name", create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert metadata(member, "other").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(member.plane.forwarded) == 1


def test_a_coordinator_is_who_leads_its_partition(member: Member) -> None:
    member.plane.answer_call = lambda request: CreateTopicsResponse(
        topics=[CreatableTopicResult(name=one.name, error_code=ErrorCode.INVALID_REPLICATION_FACTOR) for one in request.topics]  # type: ignore[attr-defined]
    )

    def found(key_type: int = 0) -> FindCoordinatorResponse:
        with member.client() as client:
            answer = client.ask(FindCoordinatorRequest(key="g", key_type=key_type, coordinator_keys=["g"]), 4)
        assert isinstance(answer, FindCoordinatorResponse)
        return answer

    member.replay(registered(1), registered(2, port=9002), registered(3, fenced=True))
    (one,) = found().coordinators
    assert ErrorCode(one.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    member.on_loop(lambda: None)  # The answer comes before the request is sent.
    (asked,) = member.plane.called
    assert isinstance(asked, CreateTopicsRequest)
    (wanted,) = asked.topics
    assert (wanted.name, wanted.num_partitions) == ("__consumer_offsets", 50)
    assert {"cleanup.policy": "compact"}.items() <= {config.name: config.value for config in wanted.configs}.items()
    # partition 3 of 5 keeps "g": abs("g".hashCode()) % 5
    member.replay(*topic("__consumer_offsets", *(([leader], [leader], leader) for leader in (1, 1, 1, 2, 1))))
    (one,) = found().coordinators
    assert (one.node_id, one.host, one.port, one.error_code) == (2, "host2", 9002, 0)
    member.replay(registered(2, fenced=True))
    assert ErrorCode(found().coordinators[0].error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ErrorCode(found(1).coordinators[0].error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    member.on_loop(lambda: None)
    assert [one.name for one in member.plane.called[-1].topics] == ["__transaction_state"]  # type: ignore[attr-defined]


def test_deleted_topics_are_forgotten_in_steps(member: Member) -> None:
    """A topic that the same change creates again goes first and at once: clients may already commit offsets of the new one."""
    member.replay(*topic("a"), *topic("again"))
    forgotten: list[str] = []

    def forget(name: str) -> Iterator[None]:
        for _ in range(3):
            yield None
        forgotten.append(name)

    ids = {name: member.plane.image.topics[name].topic_id for name in ("a", "again")}

    def changed() -> None:
        topics = member.node.topics
        topics.on_deleted = [forget]
        delta = MetadataDelta(member.plane.image)
        for record in (*map(RemoveTopicRecord, ids.values()), *topic("again", topic_id=uuid.uuid4())):
            delta.replay(record)
        steps = member.node.metadata_changed(delta)
        assert topics.get("a") is None and forgotten == [], "clients no longer see it"
        next(steps)
        assert forgotten == ["again"]
        assert sum(1 for _ in steps) == 3 and forgotten == ["again", "a"]

    member.on_loop(changed)
