"""Large answers that other threads send: the bytes are right, and what happens to a connection meanwhile harms nobody."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import message_set, some_records
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.net import bulk_sender
from tidelog.broker.net.bulk_sender import BulkSender
from tidelog.broker.server import answer_writer
from tidelog.broker.server.secured import tls_connection
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest

MIB = 1 << 20
FETCH_VERSION = 12
Done = Callable[[int, int], None]


class HeldBulk(BulkSender):
    """Keeps what it is given, until `release`."""

    def __init__(self, bulk: BulkSender) -> None:
        super().__init__(bulk._loop)
        self.held: list[tuple[int, list[Any], Done]] = []
        self.is_holding = True

    def send(self, fd: int, chunks: list[Any], done: Done) -> bool:
        if not self.is_holding:
            return super().send(fd, chunks, done)
        self.held.append((fd, chunks, done))
        return True

    def release(self) -> None:
        self.is_holding = False
        for job in self.held:
            super().send(*job)
        self.held.clear()


@pytest.fixture
def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    """A broker with 4 MiB in a topic, for which nothing counts as being in memory."""
    monkeypatch.setattr(answer_writer, "is_in_memory", lambda _: False)
    broker = start_broker()
    broker.create_topic("t")

    def fill() -> None:
        log = broker.node.manager.log("t", 0)
        for _ in range(4):
            log.append_as_leader(bytearray(message_set(2, records=some_records(10, value=os.urandom(MIB // 11)))), 0)
        log.update_high_watermark(log.log_end_offset_metadata)

    broker.on_loop(fill)
    return broker


@pytest.fixture
def held(broker: RunningBroker) -> Iterator[HeldBulk]:
    server = broker.running.server

    def hold() -> HeldBulk:
        server.bulk = held = HeldBulk(server.bulk)
        return held

    held = broker.on_loop(hold)
    yield held
    broker.on_loop(held.release)


def fetch(max_bytes: int = 8 * MIB) -> FetchRequest:
    wanted = [FetchPartition(0, fetch_offset=0, partition_max_bytes=max_bytes)]
    return FetchRequest(topics=[FetchTopic("t", partitions=wanted)], max_wait_ms=0, min_bytes=1, max_bytes=50 << 20)


def log_bytes(broker: RunningBroker) -> bytes:
    return broker.on_loop(lambda: broker.node.manager.log("t", 0).segments.active.log.path).read_bytes()


def records_of(answer: Any) -> bytes:
    return bytes(answer.responses[0].partitions[0].records)


def test_the_bytes_are_the_logs(broker: RunningBroker) -> None:
    """Also when several answers wait for one connection, and when it is slow."""
    with broker.client() as client:
        for _ in range(3):
            client.send(fetch(), FETCH_VERSION)
        expected = log_bytes(broker)
        assert [records_of(client.receive()) == expected for _ in range(3)] == [True] * 3


def test_others_do_not_wait(broker: RunningBroker, held: HeldBulk) -> None:
    """A thread that waits for its disk holds up one connection; this one may send its next request, too."""
    with broker.client() as client, broker.client() as other:
        client.send(fetch(), FETCH_VERSION)
        wait_until(lambda: bool(held.held), "the answer to be handed over", PATIENCE_S)
        client.send(MetadataRequest(topics=[]), 9)
        for _ in range(10):
            assert other.ask(MetadataRequest(topics=[]), 9).brokers
        broker.on_loop(held.release)
        assert records_of(client.receive()) == log_bytes(broker)
        assert client.receive().brokers


def test_a_connection_that_closes_keeps_its_descriptor_until_the_thread_is_done(broker: RunningBroker, held: HeldBulk) -> None:
    """Otherwise the thread would send these bytes to whoever connects next, under the same number."""
    server = broker.running.server
    with broker.client() as client:
        client.send(fetch(), FETCH_VERSION)
        wait_until(lambda: bool(held.held), "the answer to be handed over", PATIENCE_S)
    (fd,) = [fd for fd, _, _ in held.held]
    broker.on_loop(lambda: [one.close() for one in tuple(server.connections.values())])
    with broker.client() as next_client:
        assert next_client.ask(MetadataRequest(topics=[]), 9).brokers
        (connection,) = server.connections.values()
        assert connection.fd != fd
        broker.on_loop(held.release)
        wait_until(lambda: not broker.on_loop(lambda: is_open_socket(fd)), "the socket to be closed", PATIENCE_S)
        assert next_client.ask(MetadataRequest(topics=[]), 9).brokers
        next_client.socket.settimeout(0)
        with pytest.raises(BlockingIOError):
            next_client.socket.recv(1)


def is_open_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def test_a_log_that_was_cut_meanwhile_closes_the_connection(broker: RunningBroker, held: HeldBulk) -> None:
    """The client gets the beginning of an answer and its end, never other bytes."""
    expected = log_bytes(broker)
    with broker.client() as client:
        client.send(fetch(), FETCH_VERSION)
        wait_until(lambda: bool(held.held), "the answer to be handed over", PATIENCE_S)
        broker.on_loop(lambda: os.truncate(broker.node.manager.log("t", 0).segments.active.log.path, MIB))
        broker.on_loop(held.release)
        got = b""
        while more := client.socket.recv(MIB):
            got += more
    records = expected.find(got[-1000:]) + 1000
    assert 1000 <= records <= MIB
    assert len(got) < records + 1000


def test_who_stops_reading_is_no_threads_matter(broker: RunningBroker) -> None:
    """More clients than threads that take nothing: another one is served."""
    readers = []
    try:
        for _ in range(12):
            reader = RawClient(broker.address)
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            readers.append(reader)
            for _ in range(3):
                reader.send(fetch(), FETCH_VERSION)
        with broker.client() as client:
            assert records_of(client.ask(fetch(), FETCH_VERSION)) == log_bytes(broker)
    finally:
        for reader in readers:
            reader.close()


def test_a_system_without_threads(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop sends then."""

    def none(*_: int) -> None:
        raise OSError("no threads")

    monkeypatch.setattr(bulk_sender.kernel, "Senders", none)
    with broker.client() as client:
        assert records_of(client.ask(fetch(), FETCH_VERSION)) == log_bytes(broker)


def test_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in memory is read by a thread before the loop encrypts it."""
    asked: list[int] = []

    def not_here(chunks: list[Any]) -> bool:
        asked.append(sum(map(len, chunks)))
        return False

    monkeypatch.setattr(tls_connection, "is_in_memory", not_here)
    values = [os.urandom(MIB // 2) for _ in range(8)]
    with tidelog.Broker(tls=True) as broker:
        for value in values:
            broker.produce("t", value)
        with tidelog.connect(broker.bootstrap_servers, **broker.client_config("tidelog")) as client:
            assert [record.value for record in client.read("t")] == values
    assert asked
