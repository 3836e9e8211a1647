"""Clients that use more than their quotas: answered at once, then not read for a while; others are not disturbed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import message_set, produce_request, some_records
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest

GREEDY = "greedy"
LATEST_PRODUCE = 9
LATEST_FETCH = 12


class Throttled:
    """A broker whose clock stands still, and a client id with quotas."""

    def __init__(self, start_broker: StartBroker) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.broker: RunningBroker = start_broker(clock=self.clock)
        self.broker.create_topic("t")

    def limit(self, **quotas: float) -> None:
        with self.broker.client() as client:
            entity = [EntityData("client-id", GREEDY)]
            ops = [OpData(name, value) for name, value in quotas.items()]
            answer = client.ask(AlterClientQuotasRequest([EntryData(entity, ops)]), 1)
            assert [one.error_code for one in answer.entries] == [0]

    def greedy(self) -> RawClient:
        return self.broker.client(client_id=GREEDY)

    def pass_by(self, ms: int) -> None:
        self.clock.advance(ms)
        self.broker.on_loop(self.broker.running.tick)

    def muted(self) -> int:
        server = self.broker.running.server
        return self.broker.on_loop(lambda: sum(one._is_muted for one in server.connections.values()))

    def wait_until_muted(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.muted():
            assert time.monotonic() < deadline

    def others_are_served(self) -> None:
        with self.broker.client(client_id="other") as client:
            for _ in range(20):
                assert client.ask(ApiVersionsRequest("x", "1"), 3).throttle_time_ms == 0


@pytest.fixture
def throttled(start_broker: StartBroker) -> Throttled:
    return Throttled(start_broker)


def records(size: int) -> bytes:
    return message_set(2, records=some_records(1, value=bytes(size)))


def size_of(message: Any, version: int) -> int:
    return sum(map(len, request_chunks(message, version, 1, GREEDY))) - 4


def fetch(offset: int, session_id: int = 0, epoch: int = -1, max_bytes: int = 1 << 20) -> FetchRequest:
    topics = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)])]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, session_id=session_id, session_epoch=epoch, topics=topics
    )


@pytest.mark.parametrize("acks", [1, -1])
def test_producers(throttled: Throttled, acks: int) -> None:
    throttled.limit(producer_byte_rate=1000)
    request = produce_request(records(20_000), acks=acks)
    size = size_of(request, LATEST_PRODUCE)
    with throttled.greedy() as client:
        answer = client.ask(request, LATEST_PRODUCE)
        assert answer.throttle_time_ms == round((size / 10 - 1000) / 1000 * 10_000)
        assert answer.responses[0].partition_responses[0].error_code == 0, "what was sent is taken"
        assert throttled.muted() == 1
        client.send(ApiVersionsRequest("x", "1"), 3)
        throttled.others_are_served()
        assert throttled.muted() == 1
        throttled.pass_by(answer.throttle_time_ms - 1)
        throttled.others_are_served()
        assert throttled.muted() == 1
        throttled.pass_by(2)
        assert client.receive().throttle_time_ms == 0
        assert throttled.muted() == 0
    with throttled.broker.client(client_id="other") as other:
        assert other.ask(request, LATEST_PRODUCE).throttle_time_ms == 0


def test_a_producer_that_gets_no_answers_is_muted_as_well(throttled: Throttled) -> None:
    throttled.limit(producer_byte_rate=1000)
    with throttled.greedy() as client:
        for _ in range(2):
            client.send(produce_request(records(20_000), acks=0), LATEST_PRODUCE)
            client.forget()
        client.send(MetadataRequest(topics=[]), 9)
        throttled.others_are_served()
        for _ in range(2):
            throttled.wait_until_muted()
            throttled.pass_by(200_000)
        assert client.receive().throttle_time_ms == 0


def test_consumers_get_no_records(throttled: Throttled) -> None:
    with throttled.broker.client() as client:
        for _ in range(12):
            client.ask(produce_request(records(2_000)), LATEST_PRODUCE)
    throttled.limit(consumer_byte_rate=1000)
    with throttled.greedy() as client:
        capped = client.ask(fetch(0, epoch=0), LATEST_FETCH)
        assert 0 < capped.throttle_time_ms < 200, "of more than ten seconds' worth, no more than that is read"
        throttled.pass_by(12_000)
        first = client.ask(fetch(0, epoch=0, max_bytes=9_000), LATEST_FETCH)
        assert first.throttle_time_ms == 0 and len(first.responses[0].partitions[0].records) == 9_000
        session = first.session_id
        second = client.ask(fetch(4, session, 1), LATEST_FETCH)
        assert second.throttle_time_ms > 0 and second.responses == [] and second.error_code == 0
        assert second.session_id == session
        throttled.others_are_served()
        assert throttled.muted() == 1
        throttled.pass_by(12_000)
        third = client.ask(fetch(4, session, 2, max_bytes=9_000), LATEST_FETCH)
        assert third.throttle_time_ms == 0 and third.responses[0].partitions[0].records, "its session goes on"
        throttled.pass_by(12_000)
        whole = client.ask(fetch(0, max_bytes=8_000), LATEST_FETCH)
        assert whole.throttle_time_ms == 0
        again = client.ask(fetch(0), LATEST_FETCH)
        assert again.throttle_time_ms > 0 and again.session_id == 0 and again.responses == []
    throttled.broker.stop()


def test_time(throttled: Throttled) -> None:
    throttled.limit(request_percentage=0.00001)
    with throttled.greedy() as client:
        for message, version in ((MetadataRequest(topics=None), 9), (produce_request(records(10)), 9), (fetch(0), 12)):
            assert client.ask(message, version).throttle_time_ms == 1_000, "a window at most"
            assert throttled.muted() == 1
            throttled.pass_by(1_001)
        waiting = fetch(1)
        waiting.max_wait_ms, waiting.min_bytes = 50, 1
        assert client.ask(waiting, 12).throttle_time_ms == 1_000
        throttled.pass_by(1_001)
        assert client.ask(ApiVersionsRequest("x", "1"), 3).throttle_time_ms == 1_000
    throttled.others_are_served()


def test_partitions_created_and_deleted(throttled: Throttled) -> None:
    throttled.limit(controller_mutation_rate=1)

    def code(answer: Any) -> str:
        return ErrorCode(
            (getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses)[0].error_code
        ).name

    def create(name: str, partitions: int) -> CreateTopicsRequest:
        return CreateTopicsRequest([CreatableTopic(name, partitions, 1)])

    with throttled.greedy() as client:
        answer = client.ask(create("a", 15), 6)
        assert (code(answer), answer.throttle_time_ms) == ("NONE", 0)
        answer = client.ask(create("b", 1), 6)
        assert (code(answer), answer.throttle_time_ms) == ("THROTTLING_QUOTA_EXCEEDED", 4_000)
        throttled.pass_by(4_001)
        answer = client.ask(CreatePartitionsRequest([CreatePartitionsTopic("a", 17, None)]), 3)
        assert (code(answer), answer.throttle_time_ms) == ("NONE", 0)
        answer = client.ask(CreatePartitionsRequest([CreatePartitionsTopic("a", 18, None)]), 3)
        assert (code(answer), answer.throttle_time_ms) == ("THROTTLING_QUOTA_EXCEEDED", 1_999)
        throttled.pass_by(2_000)
        answer = client.ask(create("b", 3), 5)
        assert (code(answer), answer.throttle_time_ms) == ("NONE", 2_999), "an older client waits, and is not refused"
        assert throttled.muted() == 1
        throttled.pass_by(3_000)
        answer = client.ask(DeleteTopicsRequest([DeleteTopicState("a")]), 6)
        assert (code(answer), answer.throttle_time_ms) == ("NONE", 0)
        answer = client.ask(DeleteTopicsRequest([DeleteTopicState("b")]), 6)
        assert (code(answer), answer.throttle_time_ms) == ("THROTTLING_QUOTA_EXCEEDED", 16_999)


def test_requests_that_came_together_wait_their_turn(throttled: Throttled) -> None:
    throttled.limit(producer_byte_rate=1000)
    request = produce_request(records(11_000), acks=1)
    with throttled.greedy() as client:
        client.send_bytes(b"".join(b"".join(request_chunks(request, LATEST_PRODUCE, number, GREEDY)) for number in range(1, 4)))
        for number in range(1, 4):
            client._asked.append((number, type(request), LATEST_PRODUCE))
        del client._asked[:]
        frames = []
        for _ in range(3):
            frames.append(client.receive_frame())
            throttled.others_are_served()
            assert throttled.muted() == 1
            throttled.pass_by(100_000)
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2, 3]


def test_a_muted_client_may_go_and_the_broker_may_end(throttled: Throttled) -> None:
    throttled.limit(producer_byte_rate=1)
    gone, stays = throttled.greedy(), throttled.greedy()
    for client in (gone, stays):
        client.ask(produce_request(records(1_000)), LATEST_PRODUCE)
    assert throttled.muted() == 2
    gone.close()
    throttled.others_are_served()
    throttled.broker.stop()
    assert throttled.broker.is_clean and stays.closed()
    stays.close()
