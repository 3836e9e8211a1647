"""Strangers, and clients that went wrong: others keep their service, memory stays bounded, nothing is written."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.broker.bad_frames import BAD_FRAMES, BadFrame, sized, verdict_of
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.examples import examples
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.apis import api_versions
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.server import answer_writer, broker_server, connection
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCH = bytes(build_batch_v2([Record(i, 1_000 + i, CREATE_TIME, b"key", b"value") for i in range(3)]))


def produce(records: bytes = BATCH, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])],
    )


def serves(broker: RunningBroker, client: RawClient) -> None:
    """A client that was there before, and one that comes now, are served."""
    assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    with broker.client() as other:
        assert other.ask(MetadataRequest(topics=[]), 12).brokers


def memory_bytes() -> int:
    """The process's own memory; pages of files that it has mapped are the system's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


@pytest.fixture
def log_end(broker: RunningBroker) -> Iterator[None]:
    """Nothing is written by the test."""
    broker.create_topic("t")
    before = broker.on_loop(lambda: broker.node.manager.log("t", 0).log_end_offset)
    yield
    assert broker.on_loop(lambda: broker.node.manager.log("t", 0).log_end_offset) == before
    assert broker.on_loop(lambda: broker.node.manager.topics().keys()) == {"t"}


# --- what is no request


def test_bad_frames_end_as_with_kafka(broker: RunningBroker, client: RawClient, log_end: None) -> None:
    def seen(bad: BadFrame) -> str:
        return f"{bad.name}: {bad.seen(broker.address, 0.3).name}"

    assert [seen(bad) for bad in BAD_FRAMES] == [f"{bad.name}: {bad.verdict.name}" for bad in BAD_FRAMES]
    serves(broker, client)


def test_random_bytes(broker: RunningBroker, client: RawClient, log_end: None) -> None:
    @examples(100, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300), st.booleans(), st.integers(-1, 90), st.integers(-1, 20))
    def run(data: bytes, has_size: bool, api_key: int, version: int) -> None:
        if has_size:
            data = sized(struct.pack(">hhih", api_key, version, 7, -1) + data)
        with socket.create_connection(broker.address, timeout=PATIENCE_S) as connection:
            connection.sendall(data)

    run()
    serves(broker, client)


def test_damaged_requests(broker: RunningBroker, client: RawClient) -> None:
    """Every request of every API with some bytes changed: answered or closed, and nothing of the broker is harmed."""
    broker.create_topic("t")
    draw = random.Random(3)
    frames = [
        b"".join(request_chunks(api.request(), version, 7, "x"))
        for api in APIS
        for version in {api.served.first, api.served.last}
    ] + [b"".join(request_chunks(produce(), version, 7, "x")) for version in (0, 3, 9)]
    for frame in frames:
        for _ in range(4):
            damaged = bytearray(frame)
            for _ in range(draw.choice([1, 1, 2, 5])):
                damaged[draw.randrange(12, len(damaged))] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
            with socket.create_connection(broker.address, timeout=PATIENCE_S) as connection:
                connection.sendall(damaged)
                connection.shutdown(socket.SHUT_WR)
    serves(broker, client)


def test_a_produce_that_breaks_off_writes_nothing(broker: RunningBroker, client: RawClient, log_end: None) -> None:
    frame = b"".join(request_chunks(produce(), 9, 7, "x"))
    for end in (1, 4, 20, len(frame) // 2, len(frame) - 1):
        with socket.create_connection(broker.address, timeout=PATIENCE_S) as connection:
            connection.sendall(frame[:end])
            connection.shutdown(socket.SHUT_WR)
            assert not connection.recv(1)
    serves(broker, client)


def test_refusals_do_not_fill_the_log(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(60):
        verdict_of(broker.address, struct.pack(">i", -1))
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 20
    assert (
        lines[0].getMessage()
        == "connection 1 from 127.0.0.1 was closed: the size of a request is -1 bytes: expected 0 to 104857600"
    )
    assert broker.node.metrics.counters.malformed_requests == 60


# --- memory


def test_what_is_announced_takes_no_memory(broker: RunningBroker, client: RawClient) -> None:
    before = memory_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(socket.create_connection(broker.address, timeout=PATIENCE_S))
            connection.sendall(struct.pack(">i", 104_857_600) + bytes(3000))
        serves(broker, client)
        assert memory_bytes() - before < 16 << 20


# --- slow and silent peers


def test_idle_connections_are_closed(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [monotonic()]
    for module in (answer_writer, broker_server, connection):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    broker = start_broker(connections_max_idle_ms=300)
    with broker.client() as silent, broker.client() as half, broker.client() as busy:
        half.send_bytes(b"\0\0")
        counters = broker.node.metrics.counters
        while counters.received_bytes < 2:
            pass
        busy.ask(ApiVersionsRequest(), 0)
        for _ in range(2):
            assert counters.connections_idle_closed == 0
            now[0] += 0.2
            busy.ask(ApiVersionsRequest(), 0)
        assert silent.closed()
        assert half.closed()
        busy.ask(ApiVersionsRequest(), 0)
        assert counters.connections_idle_closed == 2


def test_who_does_not_read_stalls_nobody(broker: RunningBroker) -> None:
    broker.create_topic("t", max_message_bytes=10 << 20)
    large = bytes(build_batch_v2([Record(0, 1000, CREATE_TIME, None, bytes(900_000))]))
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=50 << 20,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)])],
    )
    with broker.client() as writer, contextlib.ExitStack() as stack:
        for _ in range(12):
            assert writer.ask(produce(large), 9).responses[0].partition_responses[0].error_code == 0
        slow = [stack.enter_context(broker.client()) for _ in range(20)]
        before = memory_bytes()
        for client in slow:
            for _ in range(10):
                client.send(fetch, 11)
        for _ in range(50):
            writer.ask(produce(), 9)
            writer.ask(ApiVersionsRequest(), 0)
        assert memory_bytes() - before < 16 << 20
        for _ in range(10):
            assert len(slow[0].receive().responses[0].partitions[0].records) > 10_000_000


# --- many


def test_two_thousand_connections(start_broker: StartBroker) -> None:
    count = 2000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count + 500:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * count), hard))
    try:
        broker = start_broker()
        before = memory_bytes()
        request = b"".join(request_chunks(ApiVersionsRequest(), 0, 7, "x"))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(broker.address, timeout=PATIENCE_S)) for _ in range(count)]
            for client in clients:
                client.sendall(request)
            for client in clients:
                assert client.recv(8192)
            assert len(broker.running.server.connections) == count
            assert (memory_bytes() - before) / count < 8192
            with broker.client() as one_more:
                serves(broker, one_more)
        with broker.client() as afterwards:
            serves(broker, afterwards)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_over_the_limit_wait(start_broker: StartBroker) -> None:
    broker = start_broker(max_connections=2, apis=(api_versions.API,))
    with broker.client() as first, broker.client() as second, broker.client(timeout_s=0.2) as third:
        first.ask(ApiVersionsRequest(), 0)
        second.ask(ApiVersionsRequest(), 0)
        third.send(ApiVersionsRequest(), 0)
        with pytest.raises(TimeoutError):
            third.receive()
        first.close()
        third.socket.settimeout(PATIENCE_S)
        assert third.receive_frame()
        second.ask(ApiVersionsRequest(), 0)


def test_one_address_has_so_many_connections(start_broker: StartBroker) -> None:
    broker = start_broker(max_connections_per_ip=1, **{"max.connections.per.ip.overrides": "127.0.0.1:3"})
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(broker.client()) for _ in range(3)]
        for client in clients:
            client.ask(ApiVersionsRequest(), 0)
        with broker.client() as fourth:
            assert fourth.closed()
        clients[0].close()
        wait_until(lambda: broker.on_loop(lambda: len(broker.running.server.connections)) == 2, "the end of one")
        with broker.client() as fifth:
            fifth.ask(ApiVersionsRequest(), 0)
        assert broker.node.metrics.counters.connections_refused == 1
