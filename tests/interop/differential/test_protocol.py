"""Frames: ApiVersions, versions and APIs that there are not, and requests with some bytes changed.

A changed request is read by both or by neither; then it has the same answer, or the connection is closed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.raw import response_class
from tests.interop.differential.crowd import Crowd
from tests.interop.differential.pair import Pair, Side
from tests.interop.differential.record_sets import build, records
from tests.interop.differential.requests import fetch, list_offsets, produce
from tidelog.errors import ProtocolError
from tidelog.wire.codec import Message, decoder
from tidelog.wire.headers import read_request_header, read_response, request_chunks
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TOPIC = "protocol"


@pytest.fixture(scope="module")
def ready(pair: Pair, coordinators: None) -> Iterator[Pair]:
    pair.create(TOPIC)
    pair.ask("filling", produce(TOPIC, build(records(3, random.Random(1)), 2)), 7)
    pair.check()
    yield pair


def served(side: Side) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in side.last.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_api_versions(ready: Pair, version: int) -> None:
    """The same APIs, versions and features: clients guess from them what they talk to."""
    for side in ready.sides:
        side.ask(ApiVersionsRequest("tests", "1.0"), version, has_answer=True)
    kafka, tidelog = ready.kafka.last, ready.tidelog.last
    assert served(ready.tidelog) == served(ready.kafka)
    assert (tidelog.finalized_features_epoch >= 0) == (kafka.finalized_features_epoch >= 0)
    tidelog.finalized_features_epoch = kafka.finalized_features_epoch
    for answer in (kafka, tidelog):
        for names in (answer.api_keys, answer.supported_features, answer.finalized_features):
            names.sort(key=repr)
    assert tidelog == kafka


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 300])
def test_strange_client_software(ready: Pair, name: str) -> None:
    for side in ready.sides:
        side.ask(ApiVersionsRequest(name, name), 3, has_answer=True)
    assert ready.tidelog.last.error_code == ready.kafka.last.error_code


def frame(message: Message, version: int) -> bytes:
    return b"".join(request_chunks(message, version, 7, "me"))


@pytest.mark.parametrize("version", [5, 6, 99, 32767, -1])
def test_unknown_version_of_api_versions(ready: Pair, version: int) -> None:
    """Answered in version 0, with the versions of this API (KIP-511)."""
    asked = bytearray(frame(ApiVersionsRequest("tests", "1.0"), 3))
    struct.pack_into(">h", asked, 6, version)
    answers = []
    for side in ready.sides:
        answer = side.ask_bytes(bytes(asked))
        answers.append(answer if answer == "closed" else read_response(ApiVersionsResponse, 0, answer))
    kafka, tidelog = answers
    assert tidelog == kafka


@pytest.mark.parametrize(
    ("key", "version"), [(0, 12), (0, -1), (1, 18), (2, 10), (3, 13), (3, 99), (4, 0), (5, 0), (7, 0), (22, 6), (95, 0), (-1, 0)]
)
def test_what_is_not_served(ready: Pair, key: int, version: int) -> None:
    asked = struct.pack(">hhihs", key, version, 7, 1, b"c") + bytes(20)
    for side in ready.sides:
        assert side.ask_bytes(struct.pack(">i", len(asked)) + asked) == "closed", side.name


@pytest.mark.parametrize(
    "asked",
    [b"\0\0\0\0", b"\0\0\0\1\0", b"\0\0\0\4\0\x12\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.0\r\n\r\n"],
)
def test_what_is_no_frame(ready: Pair, asked: bytes) -> None:
    for side in ready.sides:
        assert side.ask_bytes(asked) == "closed", side.name


def test_isolation_levels_that_there_are_not(ready: Pair) -> None:
    for level in (-1, 2, 127):
        for version in (4, 6, 7, 11, 12):
            ready.ask(f"fetch isolation {level}", fetch(TOPIC, isolation_level=level), version)
        ready.ask(
            f"fetch isolation {level}",
            lambda side, level=level: fetch(TOPIC, isolation_level=level, topic_id=side.topic_ids[TOPIC]),  # type: ignore[misc]
            13,
        )
        for version in (2, 5, 7):
            ready.ask(f"offsets isolation {level}", list_offsets(TOPIC, -1, isolation_level=level), version)
    ready.check()


def requests() -> list[tuple[Message, int]]:
    """What is changed: requests that change nothing themselves, whatever becomes of them."""
    config = DescribeConfigsRequest([DescribeConfigsResource(2, TOPIC, ["segment.bytes", "retention.ms"])])
    epochs = OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, -1, 0)])])
    metadata = MetadataRequest([MetadataRequestTopic(name=TOPIC)], False)
    return [
        (list_offsets(TOPIC, -1), 1),
        (list_offsets(TOPIC, -2), 5),
        (list_offsets(TOPIC, -1), 7),
        (fetch(TOPIC), 4),
        (fetch(TOPIC), 11),
        (fetch(TOPIC), 12),
        (metadata, 8),
        (metadata, 9),
        (metadata, 12),
        (config, 1),
        (config, 4),
        (epochs, 2),
        (epochs, 4),
        (DescribeClusterRequest(), 1),
        (InitProducerIdRequest(None, 1000), 1),
        (InitProducerIdRequest(None, 1000), 4),
    ]


def group_requests() -> list[tuple[Message, int]]:
    """Those of groups and transactions; nobody they name is known, and nothing waits."""
    committed = [OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 1, committed_metadata="m")])]
    in_transaction = [
        TxnOffsetCommitRequestTopic(TOPIC, partitions=[TxnOffsetCommitRequestPartition(0, 1, committed_metadata="m")])
    ]
    wanted = [OffsetFetchRequestGroup("changed", topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])]
    added = [AddPartitionsToTxnTopic(TOPIC, [0])]
    return [
        (FindCoordinatorRequest("changed"), 2),
        (FindCoordinatorRequest(coordinator_keys=["changed"]), 4),
        (JoinGroupRequest("changed", 9000, 9000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"m")]), 4),
        (SyncGroupRequest("changed", 1, "m", None, "consumer", "range", [SyncGroupRequestAssignment("m", b"a")]), 3),
        (SyncGroupRequest("changed", 1, "m", None, "consumer", "range", [SyncGroupRequestAssignment("m", b"a")]), 5),
        (HeartbeatRequest("changed", 1, "m"), 3),
        (HeartbeatRequest("changed", 1, "m"), 4),
        (LeaveGroupRequest("changed", "m"), 2),
        (LeaveGroupRequest("changed", members=[MemberIdentity("m")]), 5),
        (OffsetCommitRequest("changed", -1, "", None, -1, committed), 2),
        (OffsetCommitRequest("changed", -1, "", None, -1, committed), 8),
        (OffsetFetchRequest("changed", [OffsetFetchRequestTopic(TOPIC, [0])]), 5),
        (OffsetFetchRequest(groups=wanted), 9),
        (OffsetDeleteRequest("changed", [OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])]), 0),
        (DescribeGroupsRequest(["changed"]), 4),
        (DescribeGroupsRequest(["changed"]), 5),
        (ListGroupsRequest(["Stable"], ["classic"]), 5),
        (DeleteGroupsRequest(["changed"]), 1),
        (DeleteGroupsRequest(["changed"]), 2),
        (AddPartitionsToTxnRequest([], "changed", 5, 0, added), 2),
        (AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction("changed", 5, 0, True, added)]), 4),
        (AddOffsetsToTxnRequest("changed", 5, 0, "group"), 3),
        (EndTxnRequest("changed", 5, 0, True), 3),
        (TxnOffsetCommitRequest("changed", "changed", 5, 0, -1, "", None, in_transaction), 3),
        (DescribeTransactionsRequest(["changed"]), 0),
        (ListTransactionsRequest(["Ongoing"], [5], 5), 1),
        (DescribeProducersRequest([TopicRequest(TOPIC, [0])]), 0),
    ]


REQUESTS = [*((one, 80) for one in requests()), *((one, 30) for one in group_requests())]


@pytest.mark.parametrize("index", range(len(REQUESTS)))
def test_changed_requests(ready: Pair, index: int) -> None:
    (message, version), count = REQUESTS[index]
    rng = random.Random(index)
    sound = frame(message, version)
    for number in range(count):
        changed = bytearray(sound)
        for _ in range(rng.choice((1, 1, 2))):
            changed[rng.randrange(14, len(changed))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del changed[rng.randrange(14, len(changed)) :]
        elif rng.random() < 0.1:
            changed += rng.randbytes(rng.choice((1, 4)))
        struct.pack_into(">i", changed, 0, len(changed) - 4)
        if changes_something(bytes(changed), message, version):
            continue
        label = f"{type(message).__name__} changed {number} {changed[14:].hex()} v{version}"
        kafka, tidelog = (answer_of(ready, side, bytes(changed), message, version) for side in ready.sides)
        ready.asked += 1
        ready.compare(label, kafka, tidelog)
    ready.check()


def changes_something(changed: bytes, message: Message, version: int) -> bool:
    """Whether a request became one that creates topics, which Kafka does later, or one that trips Kafka."""
    try:
        read = decoder(type(message), version, exact=False)(changed, read_request_header(changed, 4)[1])
    except ProtocolError:
        return False
    # Of nothing at all, Kafka never says anything.
    if isinstance(read, OffsetFetchRequest):
        return version >= 8 and not read.groups
    if isinstance(read, AddPartitionsToTxnRequest):
        return version >= 4 and not read.transactions
    return getattr(read, "allow_auto_topic_creation", False) or getattr(read, "session_id", 0) < 0


def test_negative_sessions(ready: Pair) -> None:
    for session_id in (-5, -(1 << 31)):
        for epoch in (-1, 0, 1):
            for version in (7, 11, 12):
                label = f"fetch session {session_id} epoch {epoch}"
                ready.ask(label, fetch(TOPIC, session_id=session_id, session_epoch=epoch), version)
    ready.check()


def answer_of(pair: Pair, side: Side, changed: bytes, message: Message, version: int) -> Any:
    answer = side.ask_bytes(changed)
    if answer == "closed":
        return answer
    _correlation_id, response = read_response(response_class(message), version, answer)
    # Members' ids, too, are each broker's own; nobody is known here.
    return Crowd(pair).masked(side, response)
