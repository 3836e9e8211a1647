"""Coordinators that move, load and lose connections, and what a group's brokers refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run_ok
from tests.client.scripted import CLOSE, ScriptedBroker, metadata
from tests.patience import PATIENCE_S
from tidelog.client.client import Client
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets, describe_group
from tidelog.client.consumer_groups.next_records import next_records
from tidelog.errors import BrokerError, BrokerUnreachableError, CorruptBatchError, ProtocolError, UnsupportedVersionError
from tidelog.groups.description import assigned
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

KEY = TopicPartition("t", 0)
SHORT_MS = 100


class Script:
    """A broker that answers from lists, by the kind of request: the next one each time, the last one forever."""

    def __init__(self) -> None:
        self.answers: dict[type, list[Any]] = {}
        self.broker = ScriptedBroker(self.answer)

    def answer(self, request: Any, version: int) -> Any:
        kind = type(request)
        if kind is MetadataRequest and kind not in self.answers:
            return metadata({1: self.broker}, {0: 1})
        if kind is FindCoordinatorRequest and kind not in self.answers:
            return self.here()
        answers = self.answers.get(kind)
        if not answers:
            return None
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def here(self, code: int = 0) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(error_code=code, node_id=1, host="127.0.0.1", port=self.broker.port)

    def asked(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.broker.asked)


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    with made.broker:
        yield made


@pytest.fixture
def client(script: Script) -> Iterator[Client]:
    with tidelog.connect(script.broker.address, timeout_ms=PATIENCE_S * 1000) as connected:
        yield connected


def described(code: int = 0, state: str = "Empty") -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(error_code=code, group_id="g", group_state=state)])


def committed(code: int = 0, offset: int = 5) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=code)])
        ]
    )


def test_a_coordinator_that_is_looked_for_and_moves(script: Script, client: Client) -> None:
    script.answers[FindCoordinatorRequest] = [
        script.here(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        script.here(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        script.here(),
    ]
    script.answers[DescribeGroupsRequest] = [
        described(ErrorCode.NOT_COORDINATOR),
        CLOSE,
        described(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        described(),
    ]
    assert describe_group(client.cluster, "g").state == "Empty"
    assert script.asked(DescribeGroupsRequest) == 4


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        (
            FindCoordinatorRequest,
            FindCoordinatorResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            "coordinator of group 'g'",
        ),
        (DescribeGroupsRequest, described(ErrorCode.GROUP_AUTHORIZATION_FAILED), "group 'g'"),
    ],
)
def test_what_does_not_pass(script: Script, client: Client, kind: type, answer: Any, said: str) -> None:
    script.answers[DescribeGroupsRequest] = [described()]
    script.answers[kind] = [answer]
    with pytest.raises(BrokerError, match=said) as raised:
        describe_group(client.cluster, "g")
    assert raised.value.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_time_is_up(script: Script) -> None:
    script.answers[FindCoordinatorRequest] = [script.here(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    script.answers[ListGroupsRequest] = [CLOSE]
    with tidelog.connect(script.broker.address) as client:
        client.cluster.timeout_ms = SHORT_MS  # The connection, which is there, waits for as long as before.
        with pytest.raises(BrokerError, match="coordinator of group"):
            describe_group(client.cluster, "g")
        with pytest.raises(BrokerUnreachableError):
            client.groups()


def test_listing_waits_for_what_is_loading(script: Script, client: Client) -> None:
    group = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable")
    script.answers[ListGroupsRequest] = [
        ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        CLOSE,
        ListGroupsResponse(groups=[group]),
        ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]
    (found,) = client.groups()
    assert found == ("g", "Stable", "consumer", script.broker.address, None)
    with pytest.raises(BrokerError, match="list of groups"):
        client.groups()


def test_an_old_broker_tells_no_state() -> None:
    script = Script()
    script.broker.versions = script.broker.versions | {ListGroupsRequest: 0, OffsetFetchRequest: 1}
    script.answers[ListGroupsRequest] = [ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="")])]
    with script.broker, tidelog.connect(script.broker.address) as client:
        assert client.groups() == [("g", None, "", script.broker.address, None)]
        with pytest.raises(UnsupportedVersionError):
            committed_offsets(client.cluster, "g")


def test_offsets_that_are_refused(script: Script, client: Client) -> None:
    def fetched(code: int, of_partition: int = 0, offset: int = 5) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartition(
            partition_index=0, committed_offset=offset, metadata=None, error_code=of_partition
        )
        return OffsetFetchResponse(error_code=code, topics=[OffsetFetchResponseTopic(name="t", partitions=[partition])])

    script.answers[OffsetFetchRequest] = [
        fetched(ErrorCode.NOT_COORDINATOR),
        fetched(0),
        fetched(0, offset=-1),
        fetched(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        fetched(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert committed_offsets(client.cluster, "g") == {KEY: CommittedOffset(5, -1, "", NO_TIMESTAMP)}
    assert committed_offsets(client.cluster, "g") == {}
    for said in ("offsets of group 'g'", "offset of group 'g' in t-0"):
        with pytest.raises(BrokerError, match=said):
            committed_offsets(client.cluster, "g")


def test_commits_that_are_refused(script: Script, client: Client) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    script.answers[OffsetCommitRequest] = [committed(code) for code in codes]
    commit_offsets(client.cluster, "g", {KEY: 5})
    assert script.asked(OffsetCommitRequest) == 2
    with pytest.raises(BrokerError, match="group 'g' has members"):
        commit_offsets(client.cluster, "g", {KEY: 5})
    with pytest.raises(BrokerError, match="offset of group 'g' in t-0"):
        commit_offsets(client.cluster, "g", {KEY: 5})


def test_a_group_that_there_is_not(script: Script, client: Client) -> None:
    script.answers[DescribeGroupsRequest] = [described(ErrorCode.GROUP_ID_NOT_FOUND)]
    script.answers[ListGroupsRequest] = [ListGroupsResponse()]
    script.answers[OffsetFetchRequest] = [OffsetFetchResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
    found = client.group_lag("g")
    assert (found.description.state, found.partitions, found.without_log) == ("Dead", (), ())


def test_a_group_of_another_kind(script: Script, client: Client) -> None:
    """KIP-848's are dead to who asks for classic ones. Their offsets are reported all the same."""
    script.answers[DescribeGroupsRequest] = [described(state="Dead")]
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable")
    script.answers[ListGroupsRequest] = [ListGroupsResponse(groups=[ListedGroup(group_id="f"), listed])]
    script.answers[OffsetFetchRequest] = [OffsetFetchResponse()]
    found = client.group_lag("g").description
    assert (found.state, found.protocol_type, found.members) == ("Stable", "consumer", ())
    assert run_ok("groups", "describe", script.broker.address, "g").stdout == "g: Stable, its members are not shown, consumer\n"
    with pytest.raises(BrokerError, match="has members: its"):
        client.reset_group("g", "earliest")


def test_an_assignment_that_is_none() -> None:
    assert assigned(b"") == ()
    assert assigned(b"\0\1\0\0\0\7abc") is None


class TestNextRecords:
    def fetched(self, records: bytes = b"", code: int = 0) -> FetchResponse:
        partition = PartitionData(partition_index=0, error_code=code, high_watermark=9, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    def batch(self, offset: int, size: int = 40) -> bytes:
        return bytes(build_batch_v2([Record(offset, 1_000, 0, None, bytes(size))]))

    def test_nothing_is_believed_the_second_time(self, script: Script, client: Client) -> None:
        script.answers[FetchRequest] = [self.fetched()]
        assert next_records(client.cluster, {KEY: (3, 9)}, "read_committed") == {KEY: None}
        waits = [request.max_wait_ms for request in script.broker.asked if isinstance(request, FetchRequest)]
        assert (waits[0], len(waits)) == (0, 2)
        assert waits[1] > 0

    def test_a_leader_that_moves(self, script: Script, client: Client) -> None:
        moved = self.fetched(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        script.answers[FetchRequest] = [moved, CLOSE, self.fetched(self.batch(7))]
        assert next_records(client.cluster, {KEY: (3, 9)}, "read_committed") == {KEY: (7, 1_000)}

    def test_a_quota(self, script: Script, client: Client) -> None:
        script.answers[FetchRequest] = [FetchResponse(throttle_time_ms=5), self.fetched(self.batch(7))]
        assert next_records(client.cluster, {KEY: (3, 9)}, "read_committed") == {KEY: (7, 1_000)}

    def test_a_batch_that_is_cut_off(self, script: Script, client: Client) -> None:
        script.answers[FetchRequest] = [self.fetched(self.batch(3, 20_000)[:16_384]), self.fetched(self.batch(3, 20_000))]
        assert next_records(client.cluster, {KEY: (3, 9)}, "read_uncommitted") == {KEY: (3, 1_000)}

    @pytest.mark.parametrize(
        ("response", "error"),
        [
            (FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), BrokerError),
            (FetchResponse(), ProtocolError),
            (FetchResponse(responses=[]), ProtocolError),
        ],
    )
    def test_nonsense(self, script: Script, client: Client, response: FetchResponse, error: type[Exception]) -> None:
        script.answers[FetchRequest] = [response]
        with pytest.raises(error):
            next_records(client.cluster, {KEY: (3, 9)}, "read_committed")

    def test_refused_and_damaged(self, script: Script, client: Client) -> None:
        damaged = bytearray(self.batch(3))
        damaged[-1] ^= 1
        refused = self.fetched(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        script.answers[FetchRequest] = [refused, self.fetched(bytes(damaged)), self.fetched(bytes(range(12)))]
        for error in (BrokerError, CorruptBatchError, CorruptBatchError):
            with pytest.raises(error):
                next_records(client.cluster, {KEY: (3, 9)}, "read_committed")
