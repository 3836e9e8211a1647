"""What only controllers answer goes to them as it came, and comes back as it is; what clients get when none answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.cluster.fake_plane import Member, member, registered
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tidelog.broker.peers.forwarded_apis import FORWARDED
from tidelog.errors import BrokerError, BrokerUnreachableError, TidelogError, UnsupportedVersionError
from tidelog.metadata.records import FeatureLevelRecord
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, Message
from tidelog.wire.headers import read_request_header, request_chunks, response_chunks
from tidelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_quorum import DescribeQuorumRequest
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.wire.messages.update_features import UpdateFeaturesRequest

__all__ = ["member"]

REQUESTS: list[Message] = [
    CreateTopicsRequest(topics=[CreatableTopic("t", 3, 2), CreatableTopic("u", 1, 1)]),
    DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
    CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 5, None)]),
    ElectLeadersRequest(topic_partitions=[TopicPartitions("t", [0, 1])]),
    AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [ReassignablePartition(0, [1, 2])])]),
    ListPartitionReassignmentsRequest(),
    DescribeQuorumRequest(),
    AlterClientQuotasRequest([EntryData([EntityData("user", "alice")], [OpData("producer_byte_rate", 1.0)])]),
    AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 1)]),
    CreateAclsRequest([AclCreation(2, "t", 3, "User:alice", "*", 3, 3)]),
    DeleteAclsRequest([DeleteAclsFilter(2, "t", 3, None, None, 1, 1)]),
    UpdateFeaturesRequest(),
    UnregisterBrokerRequest(3),
]
CREATE = REQUESTS[0]


def created(frame: bytes) -> bytes:
    header, _ = read_request_header(frame)
    answer = CreateTopicsResponse(topics=[CreatableTopicResult(name="from the controller")])
    return b"".join(response_chunks(answer, header.api_version, header.correlation_id))[4:]


def codes(message: Any) -> set[str]:
    """Every error code that a response has."""
    found = set()
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code":
            found.add(ErrorCode(value).name)
        elif isinstance(value, list):
            found.update(*(codes(one) for one in value if hasattr(one, "FIELDS")))
    return found


@pytest.mark.parametrize("version", range(8))
def test_a_request_is_sent_on_as_it_came(member: Member, version: int) -> None:
    member.plane.answer = created
    frame = b"".join(request_chunks(CREATE, version, 4711, "the client"))
    with member.client() as client:
        client.send_bytes(frame)
        answer = client.receive_frame()
    assert member.plane.forwarded == [(frame[4:], "127.0.0.1")]
    assert bytes(answer) == created(frame[4:])
    assert not member.node.manager.logs


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: one.API_NAME)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerUnreachableError("nobody leads"), "REQUEST_TIMED_OUT"),
        (BrokerError("no", error_code=29), "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_controller_that_does_not_answer(member: Member, request_: Message, error: TidelogError, code: str) -> None:
    member.plane.answer = lambda frame: error
    for version in request_.VERSIONS:
        with member.client() as client:
            answer = client.ask(request_, version)
        assert type(answer) is RESPONSES[request_.API_KEY]
        # ElectLeaders 0 has an error for each partition only, and none of them says anything.
        assert codes(answer) <= {code} | ({"NONE"} if version == 0 else set()), version


def test_every_api_is_known_to_the_test() -> None:
    assert {one.API_KEY for one in REQUESTS} == {key for key, one in FORWARDED.items() if one.refuse is not None}


@pytest.mark.parametrize("error", [UnsupportedVersionError("v9"), b"\0\0\0\x63"], ids=["version", "another answer"])
def test_a_version_that_the_controller_lacks_ends_the_connection(member: Member, error: object) -> None:
    member.plane.answer = lambda frame: error
    with member.client() as client:
        client.send(UnregisterBrokerRequest(3), 0)
        if isinstance(error, bytes):
            assert codes(client.receive()) == {"UNKNOWN_SERVER_ERROR"}
        else:
            assert client.closed()


def test_an_api_without_messages_is_sent_on_too(member: Member) -> None:
    member.plane.answer = lambda frame: frame[4:8] + b"\0anything"
    frame = (80).to_bytes(2, "big") + (1).to_bytes(2, "big") + (99).to_bytes(4, "big") + b"\0\1x\0\1\0"
    with member.client() as client:
        client.send_bytes(len(frame).to_bytes(4, "big") + frame)
        assert client.receive_frame() == frame[4:8] + b"\0anything"
    assert member.plane.forwarded == [(frame, "127.0.0.1")]
    member.plane.answer = lambda frame: BrokerUnreachableError("nobody leads")
    with member.client() as client:
        client.send_bytes(len(frame).to_bytes(4, "big") + frame)
        assert client.closed()


def under_way(member: Member) -> int:
    return member.on_loop(lambda: len(member.node.forwarding._tasks))  # type: ignore[no-any-return, union-attr]


def test_nobody_waits_for_a_request_that_waits(member: Member) -> None:
    with member.client() as waits, member.client() as other:
        waits.send(CREATE, 7)
        assert other.ask(DescribeClusterRequest(), 1).error_code == 0
        member.plane.answer = created
        assert other.ask(CREATE, 7).topics[0].name == "from the controller"
    # Whose client has gone is not waited for, and its memory is free.
    wait_until(lambda: not member.on_loop(lambda: member.running.server.buffers.used_bytes), "the end of its bytes")
    wait_until(lambda: not under_way(member), "the end of its request")


def test_so_many_bytes_wait_and_no_more(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.broker.peers.forwarding.MAX_BYTES", 50)
    answers: list[asyncio.Future[bytes]] = []

    def later(frame: bytes) -> Any:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    member.plane.answer = later
    clients = [RawClient(member.address) for _ in range(3)]
    for client in clients:
        client.send(CREATE, 7)
    while under_way(member) < len(clients):
        pass
    with member.client() as other:
        other.ask(DescribeClusterRequest(), 1)
    assert len(member.plane.forwarded) == 1
    for number in range(3):
        while len(answers) <= number:
            member.on_loop(lambda: None)
        frame = member.plane.forwarded[number][0]
        member.on_loop(lambda number=number, frame=frame: answers[number].set_result(created(frame)))  # type: ignore[misc]
    for client in clients:
        client.receive()
        client.close()


# --- which APIs and features there are


def versions(broker: Member, version: int = 3) -> ApiVersionsResponse:
    with broker.client() as client:
        answer = client.ask(ApiVersionsRequest("test", "1"), version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def test_apis_are_those_that_the_controller_knows_too(member: Member) -> None:
    before = {one.api_key: (one.min_version, one.max_version) for one in versions(member).api_keys}
    assert before[19] == (0, 7) and before[55] == (0, 2) and before[0][1] >= 11
    member.plane.controller_versions = {19: (2, 7), 55: (0, 1), 44: (0, 0), 20: (7, 9), 0: (3, 4)}
    after = {one.api_key: (one.min_version, one.max_version) for one in versions(member).api_keys}
    assert after[19] == (2, 7) and after[55] == (0, 1) and after[44] == (0, 0)
    assert after[0] == before[0], "the controller's own Produce has nothing to do with it"
    assert before.keys() - after.keys() == (FORWARDED.keys() | {33}) - {19, 55}


def test_features_are_those_that_the_broker_behaves_by(member: Member) -> None:
    member.plane.metadata_offset = 42
    member.replay(registered(1), FeatureLevelRecord("metadata.version", 19), FeatureLevelRecord("transaction.version", 2))
    answer = versions(member)
    assert [(one.name, one.min_version, one.max_version) for one in answer.supported_features] == [("metadata.version", 1, 21)]
    assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [("metadata.version", 19)]
    assert answer.finalized_features_epoch == 41
    names = [one.name for one in versions(member, 4).supported_features]
    assert names == ["kraft.version", "metadata.version"]
    assert TopicPartition("t", 0) not in member.node.manager.logs


@pytest.mark.parametrize("version", [1, 2, 4, 7])
def test_who_is_throttled_by_the_controllers_is_muted(member: Member, version: int) -> None:
    """The answer comes at once, then nothing is read of this client for a while; others are served. Version 1 cannot say it."""

    def throttled(frame: bytes) -> bytes:
        header, _ = read_request_header(frame)
        answer = CreateTopicsResponse(throttle_time_ms=3_600_000, topics=[CreatableTopicResult(name="t")])
        return b"".join(response_chunks(answer, header.api_version, header.correlation_id))[4:]

    member.plane.answer = throttled
    with member.client() as client, member.client() as other:
        assert client.ask(CREATE, version).topics[0].name == "t"
        muted = member.on_loop(lambda: [one._is_muted for one in member.running.server.connections.values() if one._is_muted])
        assert len(muted) == (version > 1)
        assert other.ask(ApiVersionsRequest("x", "1"), 3).error_code == 0
