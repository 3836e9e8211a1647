"""Memory of requests that are being read: what has come of them is counted over all connections, and bounded."""

from __future__ import annotations

import contextlib
import gc
import struct
import threading
from time import monotonic

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tidelog.broker.net.read_buffers import SHARED_BYTES
from tidelog.broker.requests.wide_requests import SLOTS
from tidelog.broker.server import connection
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def serves(broker: RunningBroker, client: RawClient) -> None:
    client.ask(ApiVersionsRequest(), 0)


def large_request() -> bytes:
    """A Produce of 1.2 MB, and no more than that is in it: one record."""
    records = bytes(build_batch_v2([Record(0, 1000, CREATE_TIME, None, bytes(1_200_000))]))
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])]
    return b"".join(request_chunks(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 7, 1, "raw"))


def used_bytes(broker: RunningBroker) -> int:
    return broker.on_loop(lambda: broker.running.server.buffers.used_bytes)


def send_and_wait(broker: RunningBroker, client: RawClient, sent: bytes) -> None:
    """Until all of it has come."""
    expected = broker.node.metrics.counters.received_bytes + len(sent)
    client.send_bytes(sent)
    while broker.node.metrics.counters.received_bytes < expected:
        pass


def test_memory_of_all_requests_is_bounded(start_broker: StartBroker) -> None:
    """queued.max.request.bytes: once so much has come of large requests, only the one that came to it first goes on."""
    broker = start_broker(queued_max_request_bytes=1 << 20)
    broker.create_topic("t", max_message_bytes=10 << 20)
    frame = large_request()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(4)]
        half = len(frame) // 2
        for client in clients[:2]:
            send_and_wait(broker, client, frame[:half])
        serves(broker, clients[3])
        clients[2].send_bytes(frame[:half])
        serves(broker, clients[3])
        # Of the third one as much as was read before its size was known.
        assert 2 * half <= used_bytes(broker) <= 2 * half + SHARED_BYTES
        for client in clients[:3]:
            client.send_bytes(frame[half:])
        for client in clients[:3]:
            client.receive_frame()
        assert used_bytes(broker) == 0


def test_requests_that_are_only_announced_keep_nobody_waiting(start_broker: StartBroker) -> None:
    broker = start_broker(queued_max_request_bytes=1 << 20)
    broker.create_topic("t", max_message_bytes=10 << 20)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(broker.client())
            send_and_wait(broker, client, struct.pack(">i", 104_857_600) + bytes(3000))
        assert used_bytes(broker) == 50 * 3004
        other = stack.enter_context(broker.client())
        other.send_bytes(large_request())
        other.receive_frame()
        assert used_bytes(broker) == 50 * 3004


def test_who_sends_no_more_of_a_large_request_is_closed_if_others_wait(start_broker: StartBroker) -> None:
    broker = start_broker(queued_max_request_bytes=1 << 20)
    broker.create_topic("t", max_message_bytes=10 << 20)
    frame = large_request()
    with broker.client() as slow, broker.client() as other, broker.client() as third:
        send_and_wait(broker, slow, frame[: (1 << 20) + 4096])
        server = broker.running.server
        broker.on_loop(lambda: server.close_slow_senders(monotonic()))
        other.send_bytes(frame)
        while not broker.on_loop(lambda: server.buffers.is_waited_for):
            pass
        serves(broker, third)
        assert broker.node.metrics.counters.connections_stalled_closed == 0
        broker.on_loop(lambda: server.close_slow_senders(monotonic()))
        other.receive_frame()
        assert slow.closed()
        assert broker.node.metrics.counters.connections_stalled_closed == 1


@pytest.mark.parametrize("elements", [2_100, 20_000])
def test_a_wide_request_counts_until_it_is_answered(
    start_broker: StartBroker, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The larger one has memory of its own already, which is not copied."""
    copied: list[int] = []

    def copy(data: memoryview) -> bytearray:
        copied.append(len(data))
        return bytearray(data)

    monkeypatch.setattr(connection, "bytearray", copy, raising=False)
    broker = start_broker()
    asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(elements)]
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="missing", partitions=asked)])
    frame = b"".join(request_chunks(message, 7, 1, "raw"))
    wide = broker.node.wide_requests
    broker.on_loop(lambda: [wide.enter(lambda: None) for _ in range(SLOTS)])
    with broker.client() as client, broker.client() as other:
        send_and_wait(broker, client, frame)
        while not broker.on_loop(lambda: wide.waiting):
            pass
        assert len(copied) == (elements == 2_100)
        assert len(frame) - 50 < used_bytes(broker) <= len(frame)
        serves(broker, other)
        broker.on_loop(lambda: [wide.leave() for _ in range(SLOTS)])
        client.receive_frame()
        while used_bytes(broker):
            pass


def test_clients_that_leave_give_their_slots_back(start_broker: StartBroker) -> None:
    asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(20_000)]
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="missing", partitions=asked)])
    frame = b"".join(request_chunks(message, 7, 1, "raw"))
    broker = start_broker()
    wide = broker.node.wide_requests
    for _ in range(3 * SLOTS):
        with broker.client() as client:
            client.send_bytes(frame)
    with broker.client() as client:
        client.ask(message, 7)
    wait_until(lambda: broker.on_loop(lambda: not wide._used and not wide.waiting), "all slots to be free")
    assert gc.isenabled()


def test_a_broker_that_ends_within_a_wide_request_gives_the_collector_back(start_broker: StartBroker) -> None:
    """The program that it runs in goes on, and would keep each cycle of objects for ever."""
    broker = start_broker()
    broker.on_loop(lambda: broker.node.wide_requests.enter(lambda: None))
    assert not gc.isenabled()
    broker.stop()
    assert gc.isenabled()


def test_many_large_requests_at_once_are_all_read(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("t", max_message_bytes=10 << 20)
    frame = large_request()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(24)]
        held = threading.Event()
        blocked = threading.Thread(target=lambda: broker.on_loop(held.wait))
        blocked.start()
        senders = [threading.Thread(target=client.send_bytes, args=(frame * 2,)) for client in clients]
        for sender in senders:
            sender.start()
        held.set()
        for client in clients * 2:
            client.receive_frame()
        for thread in (blocked, *senders):
            thread.join()
        assert used_bytes(broker) == 0
