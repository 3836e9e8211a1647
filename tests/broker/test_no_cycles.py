"""Clients leave no reference cycles in a broker, whose old objects are frozen (`tidelog.cli.serving.process.Collector`)."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.broker.conftest import StartBroker
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

CLIENTS = """
import socket, sys
from confluent_kafka import Consumer, Producer

address = sys.argv[1]
common = {"bootstrap.servers": address, "log_level": 0}
host, _, port = address.rpartition(":")
for sent in (b"", b"\\0\\0\\0\\7garbage"):
    with socket.create_connection((host, int(port))) as one:
        one.sendall(sent)
for attempt in range(2):
    producer = Producer({**common, "transactional.id": "t"})
    producer.init_transactions(120)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("orders", b"x")
        producer.flush(120)
        end(120)
    consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.consume(1, 120)
    consumer.close()
"""


@pytest.fixture
def kept() -> Iterator[list[object]]:
    """What a collection finds is kept, in `gc.garbage`."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def test_clients_leave_no_cycles(start_broker: StartBroker, kept: list[object]) -> None:
    broker = start_broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1)
    broker.create_topic("orders")
    before = broker.on_loop(lambda: len(broker.running.server.connections))
    subprocess.run([sys.executable, "-c", CLIENTS, broker.bootstrap_servers], check=True, timeout=2 * PATIENCE_S)
    wait_until(lambda: broker.on_loop(lambda: len(broker.running.server.connections)) == before, "the end of all connections")
    gc.collect()
    found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in kept)
    assert not [name for name in found if name.startswith("tidelog.broker.")], found
