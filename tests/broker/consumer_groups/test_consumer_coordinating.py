"""Consumer groups (KIP-848) over the wire, on a clock that stands still: heartbeats, sessions, commits, restarts, settings."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.groups.members import Coordinator
from tests.broker.loop_turns import LoopTurns
from tests.broker.raw import RawClient
from tests.broker.test_widest import LONGEST_S
from tidelog.broker.coordinators.groups.consumer_coordinator import LARGE
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.errors import InvalidArgumentError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

SESSION_MS = 45_000
ON = {"group_coordinator_rebalance_protocols": "classic,consumer"}
GROUP_RESOURCE = 32
NEWEST = 1


class Consumer:
    """A member that answers its assignment at once."""

    def __init__(self, coordinator: Coordinator, group_id: str, *topics: str, **fields: Any) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.connect()
        self.member_id = fields.pop("member_id", str(uuid.uuid4()))
        self.topics: list[str] | None = list(topics)
        self.fields = fields
        self.epoch = 0
        self.owned: list[HeartbeatTopicPartitions] = []

    def connect(self) -> None:
        """Open a connection, which the coordinator closes at its end."""
        self.client: RawClient = self.coordinator.member(self.group_id).client

    def ask(self, version: int = NEWEST, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and return its answer."""
        request = ConsumerGroupHeartbeatRequest(
            self.group_id,
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=self.topics,
            topic_partitions=self.owned,
            **self.fields,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response: ConsumerGroupHeartbeatResponse = self.client.ask(request, version)
        return response

    def beat(self, **changes: Any) -> Consumer:
        """Send a heartbeat, and take over what it says."""
        response = self.ask(**changes)
        assert not response.error_code, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = response.assignment.topic_partitions
        return self

    def code(self, **changes: Any) -> int:
        return int(self.ask(**changes).error_code)

    @property
    def has(self) -> list[int]:
        return sorted(partition for one in self.owned for partition in one.partitions)

    def described(self) -> DescribedGroup:
        (group,) = self.client.ask(ConsumerGroupDescribeRequest([self.group_id]), NEWEST).groups
        assert isinstance(group, DescribedGroup)
        return group

    def commit(self, offset: int, *, epoch: int | None = None, version: int = 9, member_id: str | None = None) -> int:
        topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])
        request = OffsetCommitRequest(
            self.group_id,
            self.epoch if epoch is None else epoch,
            self.member_id if member_id is None else member_id,
            topics=[topic],
        )
        return int(self.client.ask(request, version).topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int) -> int:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group_id, member_id, epoch, None)])
        return int(self.client.ask(request, 9).groups[0].error_code)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path_factory.mktemp("consumers") / "data", **ON)
    coordinator.broker.create_topic("t", 4)
    coordinator.broker.create_topic("t.other", 2)
    yield coordinator
    coordinator.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Each test has a group of its own."""
    return str(request.node.name)


def test_two_members_share_and_one_leaves(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat()
    assert (one.epoch, one.has) == (1, [0, 1, 2, 3])
    two = Consumer(coordinator, name, "t").beat()
    assert (two.epoch, two.has) == (2, [])
    assert one.described().group_state == "Reconciling"
    before = one.owned
    one.beat()
    assert (one.epoch, one.has) == (1, [0, 1])
    one.owned, less = before, one.owned
    one.beat()  # It still has them.
    assert two.beat().has == []
    one.owned = less
    assert one.beat().epoch == 2
    assert two.beat().has == [2, 3]
    group = one.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("Stable", 2, 2, "uniform")
    assert {(each.member_id, each.member_epoch, each.member_type) for each in group.members} == {
        (one.member_id, 2, 1),
        (two.member_id, 2, 1),
    }
    assert group.members[0].client_host == "/127.0.0.1"
    assert two.ask(member_epoch=-1).member_epoch == -1
    assert one.beat().has == [0, 1, 2, 3]


def test_an_idle_heartbeat_writes_nothing(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat().beat()
    log = coordinator.broker.node.groups.log
    partition = log.partition_of(name)
    end_offset = log.end_offset(partition)
    answer = one.ask(subscribed_topic_names=None, topic_partitions=None, rebalance_timeout_ms=-1)
    assert (answer.error_code, answer.assignment, answer.heartbeat_interval_ms) == (0, None, 5000)
    assert log.end_offset(partition) == end_offset


def test_sessions_end_by_the_clock(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat()
    two = Consumer(coordinator, name, "t").beat()
    coordinator.pass_time(SESSION_MS - 1000)
    assert one.beat().has == [0, 1]
    coordinator.pass_time(2000)
    assert two.code() == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.beat().beat().has == [0, 1, 2, 3]


def test_a_member_that_does_not_revoke_is_removed(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat()
    Consumer(coordinator, name, "t").beat()
    everything = one.owned
    for _ in range(3):
        assert one.code(topic_partitions=everything) == 0
        coordinator.pass_time(21_000)
    assert one.code(topic_partitions=everything) == ErrorCode.UNKNOWN_MEMBER_ID


def test_epochs_are_checked(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat()
    assert one.code(member_epoch=2) == ErrorCode.FENCED_MEMBER_EPOCH
    assert one.code(member_epoch=0, topic_partitions=[]) == 0  # Its first answer was lost.
    Consumer(coordinator, name, "t").beat()
    one.beat().beat()
    assert one.code(member_epoch=1) == 0  # Its last answer was lost.
    assert one.code(member_epoch=0, topic_partitions=[]) == 0  # It was fenced, and gave up its partitions.
    assert one.code(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.code(group_id="no group", member_epoch=3) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
    ids=lambda changes: f"{next(iter(changes))} {next(iter(changes.values()))!r}",
)
def test_what_is_invalid(coordinator: Coordinator, changes: dict[str, Any]) -> None:
    assert Consumer(coordinator, "invalid", "t").code(**changes) == ErrorCode.INVALID_REQUEST


def test_version_0_gives_an_id(coordinator: Coordinator, name: str) -> None:
    answer = Consumer(coordinator, name, "t", member_id="").ask(0)
    assert uuid.UUID(answer.member_id) and not answer.error_code


def test_static_members(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t", instance_id="i").beat()
    other = Consumer(coordinator, name, "t", instance_id="i")
    assert other.code() == ErrorCode.UNRELEASED_INSTANCE_ID
    assert one.ask(member_epoch=-2).member_epoch == -2
    epoch = one.described().group_epoch
    assert other.beat().has == [0, 1, 2, 3]
    assert other.described().group_epoch == epoch, "nothing moves"
    assert one.code(member_epoch=1) == ErrorCode.FENCED_INSTANCE_ID
    coordinator.pass_time(SESSION_MS)
    assert other.code() == ErrorCode.UNKNOWN_MEMBER_ID


def test_assignors(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t", server_assignor="range").beat()
    assert one.described().assignor_name == "range"
    assert one.code(server_assignor="sticky") == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_patterns(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, subscribed_topic_regex=r"t\..*")
    one.topics = None
    assert one.beat().has == [0, 1]
    coordinator.broker.create_topic(f"t.{name}", 1)
    assert one.beat().has == [0, 0, 1]
    assert one.described().members[0].subscribed_topic_regex == r"t\..*"
    answer = one.ask(subscribed_topic_regex="(?=t)")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION and "(?=" in (answer.error_message or "")
    one.fields, one.topics = {"subscribed_topic_regex": ""}, ["t"]
    assert one.beat().beat().has == [0, 1, 2, 3]


def test_many_topics_are_matched_elsewhere(coordinator: Coordinator, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.broker.coordinators.groups.consumer_coordinator.MANY_TOPICS", 0)
    coordinator.broker.create_topic(name, 1)
    one = Consumer(coordinator, name, subscribed_topic_regex=f"{name}.*")
    one.topics = None
    assert one.beat().has == [0]
    coordinator.broker.create_topic(f"{name}-2", 1)
    assert one.beat().has == [0, 0]
    assert one.code(subscribed_topic_regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    coordinator.restart()
    one.connect()
    one.fields = {}
    assert one.beat(rebalance_timeout_ms=-1, topic_partitions=None).has == [0, 0]


def test_topics_grow_and_go(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, name).beat()
    assert one.has == []
    coordinator.broker.create_topic(name, 2)
    assert one.beat().has == [0, 1]
    assert one.client.ask(CreatePartitionsRequest([CreatePartitionsTopic(name, 3, None)]), 3).results[0].error_code == 0
    assert one.beat().has == [0, 1, 2]


def test_commits_name_the_epoch(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t")
    assert one.commit(1, epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert one.commit(1, epoch=1, version=8) == ErrorCode.ILLEGAL_GENERATION
    one.beat()
    assert one.commit(5) == 0
    assert one.commit(5, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert one.commit(5, epoch=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert one.commit(5, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.commit(5, epoch=-1, member_id="") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (one.fetch(None, -1), one.fetch(one.member_id, 1)) == (0, 0)
    assert one.fetch(one.member_id, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert one.fetch("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    deletion = OffsetDeleteRequest(name, [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
    assert one.client.ask(deletion, 0).topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert one.client.ask(DeleteGroupsRequest([name]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    one.ask(member_epoch=-1)
    assert one.commit(6, epoch=-1, member_id="") == 0
    assert one.client.ask(DeleteGroupsRequest([name]), 2).results[0].error_code == 0
    assert one.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_other_protocol(coordinator: Coordinator, name: str) -> None:
    """A group without members takes those of the other protocol, and keeps its offsets. By default, a classic one with members
    does not.
    """
    one = Consumer(coordinator, name, "t").beat()
    one.commit(7)
    classic = coordinator.member(name)
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    (group,) = one.client.ask(DescribeGroupsRequest([name]), 5).groups
    assert group.group_state == "Dead"
    one.ask(member_epoch=-1)
    classic.join(member_id="unknown")
    assert classic.joined().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not one.described().error_code, "nobody has joined"
    classic.member_id = ""
    classic.enter()
    assert not classic.joined().error_code
    assert one.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert one.code(member_epoch=0, topic_partitions=[]) == ErrorCode.GROUP_ID_NOT_FOUND
    classic.leave()
    one.epoch, one.owned = 0, []
    assert one.beat().has == [0, 1, 2, 3]
    offsets = coordinator.group(name).offsets.get("t", 0)
    assert offsets is not None and offsets.offset == 7


def test_lists(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat()

    def listed(**filters: Any) -> set[tuple[str, str, str]]:
        groups = one.client.ask(ListGroupsRequest(**filters), 5).groups
        return {(each.protocol_type, each.group_state, each.group_type) for each in groups if each.group_id == name}

    assert (
        listed() == listed(types_filter=["Consumer"]) == listed(states_filter=["stable"]) == {("consumer", "Stable", "consumer")}
    )
    assert listed(types_filter=["classic"]) == listed(states_filter=["Empty"]) == set()


def test_settings_of_a_group(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t").beat()

    def set_to(**settings: str) -> tuple[int, str | None]:
        configs = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in settings.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, name, configs)])
        answer = one.client.ask(request, 1).responses[0]
        return answer.error_code, answer.error_message

    assert set_to(consumer_heartbeat_interval_ms="9000", consumer_session_timeout_ms="50000")[0] == 0
    assert one.ask().heartbeat_interval_ms == 9000
    coordinator.pass_time(SESSION_MS + 1000)
    one.beat()
    coordinator.restart()
    one.connect()
    assert one.ask().heartbeat_interval_ms == 9000
    code, reason = set_to(consumer_session_timeout_ms="1")
    assert code == ErrorCode.INVALID_CONFIG and reason is not None and "group.consumer.min.session.timeout.ms" in reason
    assert set_to(nonsense="1")[0] == set_to(consumer_session_timeout_ms="x")[0] == ErrorCode.INVALID_CONFIG
    request = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, name, None)])
    configs = one.client.ask(request, 4).results[0].configs
    assert {(each.name, each.value, each.config_source) for each in configs} == {
        ("consumer.heartbeat.interval.ms", "9000", 8),
        ("consumer.session.timeout.ms", "50000", 8),
    }


def test_a_restart_changes_nothing(coordinator: Coordinator, name: str) -> None:
    one = Consumer(coordinator, name, "t", instance_id="i").beat()
    two = Consumer(coordinator, name, "t").beat()
    one.beat()
    before = one.described()
    coordinator.restart()
    for each in (one, two):
        each.connect()
    assert one.described() == before
    assert one.beat().epoch == 2
    assert two.beat().has == [2, 3]
    coordinator.pass_time(SESSION_MS)
    assert two.code() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_large_group_is_assigned_elsewhere(coordinator: Coordinator, name: str) -> None:
    coordinator.broker.create_topic(name, LARGE)
    one = Consumer(coordinator, name, name).beat()
    assert len(one.has) == LARGE
    two = Consumer(coordinator, name, name).beat()
    consumer = coordinator.group(name).consumer
    assert consumer is not None
    while len(two.has) < LARGE // 2:  # Another thread makes the assignment.
        one.beat()
        two.beat()
    assert sorted(one.has + two.has) == list(range(LARGE))


def test_it_is_off_by_default(tmp_path: Any) -> None:
    coordinator = Coordinator(tmp_path / "data")
    try:
        coordinator.broker.create_topic("t", 1)
        one = Consumer(coordinator, "g", "t")
        assert one.code() == one.described().error_code == ErrorCode.UNSUPPORTED_VERSION
        assert newest(one.client) == 0
    finally:
        coordinator.close()


def newest(client: RawClient) -> int:
    keys = client.ask(ApiVersionsRequest("test", "1"), 3).api_keys
    return next(int(one.max_version) for one in keys if one.api_key == ConsumerGroupHeartbeatRequest.API_KEY)


def test_versions(coordinator: Coordinator) -> None:
    assert newest(coordinator.member("").client) == 1


@pytest.mark.parametrize(
    "properties",
    [
        {"group.coordinator.rebalance.protocols": "consumer"},
        {"group.coordinator.rebalance.protocols": "classic,share"},
        {"group.consumer.assignors": "com.example.Mine"},
        {"group.consumer.session.timeout.ms": 10_000},
        {"group.consumer.heartbeat.interval.ms": 60_000},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_bad_settings(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(properties)).replace(".", r"\.")):
        BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"} | properties)


def test_a_large_group_leaves_the_loop_to_others(coordinator: Coordinator, name: str) -> None:
    """Sixty members over 2,000 partitions, in the loop's own processor time."""
    coordinator.broker.create_topic(name, 2000)
    members = [Consumer(coordinator, name, name) for _ in range(60)]
    members[0].beat()  # The first use of a message compiles its codec.
    with LoopTurns(coordinator.broker) as turns:
        while len(members[-1].has) < 2000 // 60:
            for member in members:
                member.beat()
    assert turns.longest.seconds < LONGEST_S, turns.longest
    for member in members:
        member.client.close()
