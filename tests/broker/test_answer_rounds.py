"""Small responses that another thread sends: each arrives, in order, also at clients that are cut off or do not read."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.produce_helpers import answer, produce_request
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch
from tidelog.broker.net.answer_rounds import AnswerRounds, answers_of
from tidelog.broker.net.read_buffers import LARGE_BYTES
from tidelog.broker.server.answer_writer import AnswerWriter
from tidelog.wire.codec import Message
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

CLIENTS = 49
"""Three times as many as are sent together, and one."""
REFUSED = struct.pack(">i", -5)


@contextmanager
def busy(broker: RunningBroker) -> Iterator[AnswerRounds]:
    """The broker's loop does something else meanwhile: afterwards all sockets to which something was sent are ready at once."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait(PATIENCE_S)

    broker._loop.call_soon_threadsafe(work)
    assert begun.wait(PATIENCE_S)
    try:
        yield answers_of(broker._loop)
    finally:
        over.set()


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[list[RawClient]]:
    with ExitStack() as stack:
        yield [stack.enter_context(broker.client()) for _ in range(CLIENTS)]


def test_each_client_has_all_its_answers_in_order(broker: RunningBroker, clients: list[RawClient]) -> None:
    for _ in range(3):
        with busy(broker):
            for number, client in enumerate(clients):
                for _ in range(number % 4):
                    client.send(ApiVersionsRequest(), 0)
                    client.send(MetadataRequest(topics=[]), 1)
        for number, client in enumerate(clients):
            for _ in range(number % 4):
                assert client.receive().api_keys
                assert client.receive().brokers


def test_a_client_that_is_cut_off_has_its_answers_first(broker: RunningBroker, clients: list[RawClient]) -> None:
    with busy(broker):
        for client in clients:
            client.send(ApiVersionsRequest(), 0)
            client.send_bytes(REFUSED)
    for client in clients:
        assert client.receive().api_keys
        assert client.socket.recv(1) == b""


def test_half_a_request_waits_for_its_other_half(broker: RunningBroker, clients: list[RawClient]) -> None:
    whole = struct.pack(">ihhih", 10, 18, 0, 7, -1)
    for cut in range(1, len(whole)):
        with busy(broker):
            for client in clients:
                client.send(ApiVersionsRequest(), 0)
                client.send_bytes(whole[:cut])
        for client in clients:
            assert client.receive().api_keys
        with busy(broker):
            for client in clients:
                client.send_bytes(whole[cut:])
        for client in clients:
            assert client.receive_frame()[:4] == struct.pack(">i", 7)


def test_clients_that_leave_do_no_harm(broker: RunningBroker, clients: list[RawClient]) -> None:
    with busy(broker):
        for client in clients:
            client.send(ApiVersionsRequest(), 0)
        for client in clients[::2]:
            client.close()
    for client in clients[1::2]:
        assert client.receive().api_keys


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what sockets did not take, of connections that begin after this."""
    sizes: list[int] = []
    take_back = AnswerWriter._take_back

    def noted(self: AnswerWriter, data: bytes) -> None:
        sizes.append(len(data))
        take_back(self, data)

    monkeypatch.setattr(AnswerWriter, "_take_back", noted)
    return sizes


def frames(message: Message, version: int, numbers: range) -> bytes:
    return b"".join(chunk for number in numbers for chunk in request_chunks(message, version, number, "lazy"))


def correlation_id(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big")


def test_a_client_that_does_not_read(returned: list[int], broker: RunningBroker, clients: list[RawClient]) -> None:
    """Its responses wait for it, in order, small and large ones. The others get theirs meanwhile, and all when they leave."""
    broker.create_topic("wide", 10)
    broker.create_topic("orders", 1)
    assert answer(clients[0].ask(produce_request(batch(count=20, value=bytes(20_000)), topic="orders"), 9)).error_code == 0
    topic = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
    wide = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
    count, first = 20_000, 17_000  # The small ones fill the buffers of both sides.

    def is_large(number: int) -> bool:
        return number >= first and number % 100 == 0

    requests = b"".join(
        frames(fetch, 11, range(number, number + 1)) if is_large(number) else frames(wide, 1, range(number, number + 1))
        for number in range(count)
    )
    with broker.client() as lazy, broker.client() as leaves:
        senders = [threading.Thread(target=send_until_closed, args=(one, requests)) for one in (lazy, leaves)]
        for client, one in zip((lazy, leaves), senders, strict=True):
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            one.start()
        deadline = monotonic() + PATIENCE_S
        while len(returned) < 2 and monotonic() < deadline:
            with busy(broker):
                for client in clients:
                    client.send(ApiVersionsRequest(), 0)
            for client in clients:
                assert client.receive().api_keys
        assert len(returned) >= 2
        leaves.socket.shutdown(socket.SHUT_RDWR)
        for number in range(count):
            if not number % 2000:
                with busy(broker):
                    for client in clients:
                        client.send(ApiVersionsRequest(), 0)
                for client in clients:
                    assert client.receive().api_keys
            frame = lazy.receive_frame()
            assert correlation_id(frame) == number
            assert (len(frame) > 400_000) == is_large(number)
        for one in senders:
            one.join(PATIENCE_S)
            assert not one.is_alive()


def send_until_closed(client: RawClient, requests: bytes) -> None:
    with suppress(OSError):
        client.send_bytes(requests)


def test_small_requests_go_before_those_of_bulk_producers(broker: RunningBroker, clients: list[RawClient]) -> None:
    """Also if the bulk producer's socket was ready first."""
    broker.create_topic("orders", 1)
    small, large = batch(count=1), batch(count=1000, value=b"v" * 30)
    assert len(large) > LARGE_BYTES
    bulk, other, *_ = clients
    for _ in range(3):
        for _ in range(2):
            bulk.ask(produce_request(large, topic="orders"), 9)
        with busy(broker):
            bulk.send(produce_request(large, topic="orders"), 9)
            other.send(produce_request(small, topic="orders"), 9)
        assert answer(bulk.receive()).base_offset == answer(other.receive()).base_offset + 1


def test_another_loop_queues_nothing() -> None:
    async def main() -> AnswerRounds:
        return answers_of(asyncio.get_running_loop())

    assert asyncio.run(main()).ready == 0
