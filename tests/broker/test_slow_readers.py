"""Clients that ask for records and do not read them: the memory that they take is bounded, others get on, and they go at last."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.produce_helpers import NOW_MS
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

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
            log.watermarks.advance_to_log_end()

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
            reader.settimeout(60)
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
