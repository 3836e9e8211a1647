"""Clients that ask for records and do not read them: the memory that they take is bounded, others get on, and they go at last."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import NOW_MS
from tests.patience import PATIENCE_S
from tidelog.broker.server import answer_writer, broker_server, connection
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest

PARTITIONS = 60
READERS = 20
BUDGET_BYTES = 4 << 20
BATCH = bytes(build_batch_v2([Record(0, NOW_MS, CREATE_TIME, None, bytes(100 * 1024))]))


def fetch() -> FetchRequest:
    wanted = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in range(PARTITIONS)]
    topic = FetchTopic(topic="t", partitions=wanted)
    return FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_epoch=-1, topics=[topic])


def memory() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("version", [3, 4])
def test_their_answers_have_a_budget(broker: RunningBroker, version: int) -> None:
    broker.create_topic("t", partitions=PARTITIONS)
    node = broker.node

    def fill() -> None:
        node.unsent.max_bytes = BUDGET_BYTES
        for index in range(PARTITIONS):
            log = node.manager.log("t", index)
            log.append_as_leader(bytearray(BATCH), 0)
            log.watermarks.update_high_watermark_fast()

    broker.on_loop(fill)
    port = broker.running.listeners[0].port
    frame = b"".join(map(bytes, request_chunks(fetch(), version, 1, "slow")))
    before = memory()
    readers = []
    try:
        for _ in range(READERS):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port))
            reader.sendall(frame)
            readers.append(reader)
            # Each has an answer before the next one asks, and takes none of it: at once they would leave one batch to each.
            reader.settimeout(PATIENCE_S)
            assert reader.recv(1, socket.MSG_PEEK)
        used = broker.on_loop(lambda: node.unsent.used_bytes)
        assert 0 < used < BUDGET_BYTES + (READERS + 1) * 2 * len(BATCH)
        assert memory() - before < 16 * BUDGET_BYTES  # Without the budget: twenty times six megabytes, or twice that.
        with broker.client() as client:  # A client that reads gets a first batch each time.
            answer = client.ask(fetch(), version)
            assert sum(len(one.records or b"") for one in answer.responses[0].partitions) >= len(BATCH)
            few = broker.on_loop(lambda: node.unsent.used_bytes) // 2
            broker.on_loop(lambda: setattr(node.unsent, "max_bytes", few))
            broker.on_loop(lambda: broker.running.server.close_stalled(time.monotonic() + 1))
            counters = node.metrics.counters
            assert broker.on_loop(lambda: counters.connections_stalled_closed) > 0
            assert broker.on_loop(lambda: node.unsent.used_bytes) < few
            assert client.ask(fetch(), version).responses
    finally:
        for reader in readers:
            reader.close()
    while broker.on_loop(lambda: len(broker.running.server.connections)):
        pass
    assert broker.on_loop(lambda: node.unsent.used_bytes) == 0


def test_answers_that_are_not_cut_short_are_bounded_too(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks but by the sweep, in 10 s: it is noticed when more is kept."""
    now = [time.monotonic()]
    for module in (answer_writer, broker_server, connection):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    broker = start_broker(socket_send_buffer_bytes=4096)
    for number in range(300):
        broker.create_topic(f"topic-{number}-{'x' * 200}")
    node, counters = broker.node, broker.node.metrics.counters
    frame = b"".join(map(bytes, request_chunks(MetadataRequest(topics=None), 9, 1, "slow")))

    def used() -> int:
        return broker.on_loop(lambda: node.unsent.used_bytes)

    with ExitStack() as stack:

        def one_more() -> None:
            before = counters.connections_accepted
            slow = stack.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(broker.address)
            slow.sendall(frame)
            assert slow.recv(1, socket.MSG_PEEK)
            while counters.connections_accepted == before or not used():
                pass

        one_more()
        answer_bytes = used()
        broker.on_loop(lambda: setattr(node.unsent, "max_bytes", 4 * answer_bytes))
        for _ in range(11):
            one_more()
            now[0] += 1.1
        assert used() <= 9 * answer_bytes, "twice the budget, and one"
        assert counters.connections_stalled_closed >= 3
        with broker.client() as client:
            assert len(client.ask(MetadataRequest(topics=None), 9).topics) == 300
