"""Finished batches in transactions, judged by Apache Kafka 3.9.1 and 2.4.1, and the same on Tidelog: once each, whatever fails.

A counter copies numbers into three partitions, its position in a group of the same transaction, as the sink and the copying jobs
do. Readers are librdkafka's.

| what fails | |
|---|---|
| requests and answers get lost | at random, in the client |
| the broker is killed | kill -9 in the middle of transactions, and started again on its folder |
| the writer is killed | kill -9 at random; the next one has the same transactional id |
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import tidelog
from tests.broker.eos.processes import Served
from tests.client.unreliable import Unreliable
from tests.interop.counting import GROUP, PARTITIONS, TOPIC, count
from tests.interop.gate import first_of
from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import consume, create_topics, wait_until_decided
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.client import transactions_supported
from tidelog.client.client import Client
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.errors import ProducerFencedError, TidelogError
from tidelog.model import TopicPartition
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.spark.sink.broker_target import commit_to_broker
from tidelog.spark.sink.sink_options import parse_sink_options
from tidelog.spark.sink.spool import Spool

SOAK = bool(os.environ.get("TIDELOG_SOAK"))
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
PEERS = ("3.9.1", "tidelog", "2.4.1")

AnyBroker = Kafka391 | Kafka241 | Served


@pytest.fixture(scope="module", params=["3.9.1", *first_of("tidelog", "2.4.1", why="an older release, with the same requests")])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyBroker]:
    with started(request.param, tmp_path_factory.mktemp(request.param.replace(".", "-"))) as broker:
        yield broker


@contextlib.contextmanager
def started(peer: str, folder: Path) -> Iterator[AnyBroker]:
    broker: AnyBroker
    if peer == "tidelog":
        broker = Served(folder / "data", PROPERTIES)
    else:
        broker = (Kafka391 if peer == "3.9.1" else Kafka241)(folder, PROPERTIES)
    with broker:
        yield broker


def check(peer: AnyBroker, topic: str) -> int:
    """Check what was committed: each number once, in order within each partition, up to the group's position. Returns that."""
    key = TopicPartition(topic, 0)
    with tidelog.connect(peer.bootstrap) as client:
        position = committed_offsets(client.cluster, GROUP, [key])[key][0]
        wait_until_decided(peer.bootstrap, topic, PARTITIONS)
        read = [
            [int(row.value or b"") for row in consume(peer.bootstrap, topic, number, isolation="read_committed")]
            for number in range(PARTITIONS)
        ]
        if isinstance(peer, Kafka241):
            # It shows an offset a moment after the transaction's end, and cannot be asked whether one is still to come (KIP-447).
            position = sum(map(len, read))
            wait_until(
                lambda: committed_offsets(client.cluster, GROUP, [key])[key][0] == position, f"offset {position}", PATIENCE_S
            )
    assert all(values == sorted(values) for values in read)
    assert sorted(value for values in read for value in values) == list(range(position))
    return position


def test_connections_that_are_lost(peer: AnyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    create_topics(peer.bootstrap, {"lost": {}}, PARTITIONS)
    rng = random.Random(1)
    with tidelog.connect(peer.bootstrap) as client, monkeypatch.context() as patched:
        unreliable = Unreliable(patched, rng, 0.05)
        count(client.cluster, "lost", "lost", rng, 400)
        while unreliable.losses <= 10:  # How many there are is for chance and the clock to say.
            count(client.cluster, "lost", "lost", rng, 50)
    assert check(peer, "lost") >= 400


def test_refused_fenced_and_begun_anew(peer: AnyBroker) -> None:
    create_topics(peer.bootstrap, {"fenced": {}}, 1)
    key = TopicPartition("fenced", 0)

    def batch(*values: bytes) -> bytearray:
        return build_batch_v2([Record(i, 1_700_000_000_000, 0, None, value) for i, value in enumerate(values)])

    with tidelog.connect(peer.bootstrap) as client, BatchAppender(client.cluster, transactional_id="one") as appender:
        assert transactions_supported(client.cluster)
        appender.init()
        appender.begin()
        appender.append(key, batch(b"refused"))
        appender.append(key, batch(bytes(2 << 20)))
        appender.append(key, batch(b"refused, too"))
        with pytest.raises(TidelogError, match="MESSAGE_TOO_LARGE"):
            appender.commit()
        appender.abort()
        for value in (b"1", b"2"):
            appender.begin()
            appender.append(key, batch(value), tag=value)
            (done,) = appender.flush()
            assert done.tag == value
            appender.commit()
        appender.begin()
        appender.append(key, batch(b"left open"))
        appender.flush()
        with BatchAppender(client.cluster, transactional_id="one") as successor:
            successor.init()
            successor.begin()
            successor.append(key, batch(b"3"))
            successor.commit()
            with pytest.raises(ProducerFencedError):
                appender.commit()
            appender.abort()
            successor.begin()
            successor.append(key, batch(b"4"))
            successor.commit()
            successor.wait_until_visible()
    assert [row.value for row in consume(peer.bootstrap, "fenced", isolation="read_committed")] == [b"1", b"2", b"3", b"4"]


def test_a_transaction_that_takes_too_long(peer: AnyBroker) -> None:
    create_topics(peer.bootstrap, {"slow": {}}, 1)
    key = TopicPartition("slow", 0)
    with (
        tidelog.connect(peer.bootstrap) as client,
        BatchAppender(client.cluster, transactional_id="slow", transaction_timeout_ms=300) as appender,
    ):
        appender.init()
        with pytest.raises(ProducerFencedError, match="longer than its timeout"):
            appender.begin()
            appender.append(key, build_batch_v2([Record(0, 1, 0, None, b"late")]))
            appender.flush()  # Which says so itself on a machine that takes that long.
            wait_until(lambda: _end(client, key) > 1, "the coordinator's marker", PATIENCE_S)
            appender.commit()
    assert consume(peer.bootstrap, "slow", isolation="read_committed") == []


def test_a_commit_that_takes_too_long_says_what_to_turn(peer: AnyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch for which its transaction's timeout is too short fails by name, and goes through with a longer one."""
    create_topics(peer.bootstrap, {"poison": {}}, 1)
    key = TopicPartition("poison", 0)
    given = {"path": peer.bootstrap, "transactionTimeout": "300"}
    options = parse_sink_options(given, streaming=True).for_query("poison")
    with Spool(None, "poison", 1) as spool:
        spool.add(key, build_batch_v2([Record(0, 1, 0, None, b"late")]))
        batches = [spool.finish()]
    commit = BatchAppender.commit
    with tidelog.connect(peer.bootstrap) as client:

        def slowly(appender: BatchAppender) -> None:
            appender.flush()
            wait_until(lambda: _end(client, key) > 1, "the coordinator's marker", PATIENCE_S)
            commit(appender)

        with monkeypatch.context() as patched:
            patched.setattr(BatchAppender, "commit", slowly)
            with pytest.raises(
                ProducerFencedError, match=r"timeout is 300 ms.*transactionTimeout.*transaction\.max\.timeout\.ms"
            ):
                commit_to_broker(options, batches, 1)
        longer = parse_sink_options({"path": peer.bootstrap}, streaming=True).for_query("poison")
        commit_to_broker(longer, batches, 1)
    assert [row.value for row in consume(peer.bootstrap, "poison", isolation="read_committed")] == [b"late"]


def _end(client: Client, key: TopicPartition) -> int:
    return client.latest_offsets([key])[key]


def test_writers_that_are_killed(peer: AnyBroker) -> None:
    rng = random.Random(4)
    create_topics(peer.bootstrap, {TOPIC: {}}, PARTITIONS)
    for _ in range(4):
        with writer(peer.bootstrap, 10**9) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 12)):
                if not process.stdout.readline():
                    raise RuntimeError("the writer has ended")
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)
    with writer(peer.bootstrap, 1) as process:  # ends what the last one left open
        assert process.wait(PATIENCE_S) == 0
    assert check(peer, TOPIC) > 0


@pytest.mark.parametrize("peer", PEERS if SOAK else PEERS[:2], indirect=True)
def test_brokers_that_are_killed(peer: AnyBroker) -> None:
    """The last one: it stops the broker that the others share, and starts it again."""
    rng = random.Random(2)
    create_topics(peer.bootstrap, {"killed": {}}, PARTITIONS)
    until = threading.Event()
    failures: list[BaseException] = []
    positions: list[int] = []

    def run() -> None:
        try:
            with tidelog.connect(peer.bootstrap, timeout_ms=2 * 1000 * PATIENCE_S) as client:
                count(client.cluster, "killed", "killed", random.Random(3), 10**9, until.is_set, positions.append)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=run)
    writer.start()
    try:
        for _ in range(2):
            wanted = len(positions) + rng.randrange(3, 10)
            wait_until(partial(_has_come, wanted, positions, failures), "progress", PATIENCE_S)
            peer.kill()
            peer.start()
    finally:
        until.set()
        writer.join(PATIENCE_S)
    if writer.is_alive():
        raise TimeoutError("the writer does not end")
    for failure in failures:
        raise failure
    assert check(peer, "killed") == positions[-1]


def _has_come(wanted: int, positions: list[int], failures: list[BaseException]) -> bool:
    return len(positions) >= wanted or bool(failures)


@contextlib.contextmanager
def writer(bootstrap: str, more: int) -> Iterator[subprocess.Popen[str]]:
    """A process that counts on by `more`; it writes a line for each transaction."""
    command = [sys.executable, "-m", "tests.interop.counting", bootstrap, str(more)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
