"""A cut, taken while producers write and transactions are open: history and stream together are every committed record, once."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

import tidelog
from tests.interop.gate import first_of
from tests.interop.spark_program import SparkProgram, written
from tests.kafka.brokers import Kafka391
from tests.kafka.clients import create_topics, flush, wait_until_ended
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.model import TopicPartition
from tidelog.spark.bootstrap import take_cut

NOON = 1_700_000_000_000
START = NOON + 30_000
PARTITIONS = 2
LONG_TRANSACTION = 40
"""Records."""


class Writers:
    """Producers, with and without transactions, which go on until they are stopped. `committed` holds (timestamp, value)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.committed: list[tuple[int, bytes]] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._done = threading.Event()
        self._written = threading.Condition()
        self._failed: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded, args=(number,)) for number in range(3)]

    def wait_for(self, count: int) -> None:
        with self._written:
            if not self._written.wait_for(lambda: len(self.committed) >= count or self._failed, PATIENCE_S):
                raise TimeoutError(f"waited {PATIENCE_S} s for {count} records, {len(self.committed)} are committed")
        self._check()

    def _check(self) -> None:
        if self._failed:
            raise self._failed[0]

    @contextmanager
    def in_transaction(self) -> Iterator[None]:
        """One that is open meanwhile, for sure, with a record in each partition."""
        name = f"{self._topic}-open"
        settings: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "transactional.id": name}
        producer = Producer(settings)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        rows = [(START + number, b"open-%d" % number) for number in range(PARTITIONS)]
        for number, row in enumerate(rows):
            producer.produce(self._topic, row[1], None, number, timestamp=row[0])
        flush(producer)
        yield
        producer.commit_transaction(PATIENCE_S)
        with self._written:
            self.committed += rows
        wait_until_ended(self._bootstrap, name)

    @contextmanager
    def running(self) -> Iterator[Writers]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._done.set()
            for thread in self._threads:
                thread.join(PATIENCE_S)
        self._check()
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError("a writer does not end")
        wait_until_ended(self._bootstrap, *(f"{self._topic}-{number}" for number in (1, 2)))

    def _guarded(self, number: int) -> None:
        try:
            self._write(number)
        except BaseException as error:
            with self._written:
                self._failed.append(error)
                self._written.notify_all()

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        is_transactional = number > 0
        settings: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "linger.ms": 5, "enable.idempotence": True}
        producer = Producer(settings | ({"transactional.id": f"{self._topic}-{number}"} if is_transactional else {}))
        if is_transactional:
            producer.init_transactions(PATIENCE_S)
        turn = 0
        while not self._done.is_set():
            rows = []
            if is_transactional:
                producer.begin_transaction()
            for i in range(LONG_TRANSACTION if number == 2 else 10):
                row = (NOON + chance.randrange(60_000), b"%d-%d-%d" % (number, turn, i))
                producer.produce(self._topic, row[1], None, chance.randrange(PARTITIONS), timestamp=row[0])
                rows.append(row)
                if i % 10 == 9:
                    flush(producer)
                self._done.wait(0.01)
            is_committed = True
            if is_transactional:
                is_committed = chance.random() < 0.7
                producer.commit_transaction(PATIENCE_S) if is_committed else producer.abort_transaction(PATIENCE_S)
            if is_committed:
                with self._written:
                    self.committed += rows
                    self._written.notify_all()
            turn += 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProgram]:
    with SparkProgram(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def places(broker: Kafka391, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    options: dict[str, Any] = {"num_partitions": PARTITIONS, "log_retention_ms": -1}
    with tidelog.Broker(data_dir=tmp_path_factory.mktemp("tidelog") / "data", **options) as served:
        yield {"kafka": broker.bootstrap, "tidelog": served.bootstrap_servers}


@pytest.mark.parametrize("place", first_of("kafka", "tidelog", why="the same job from the other broker: test_replays has both"))
def test_no_gap_and_no_repeat_while_producers_write(
    place: str, places: dict[str, str], program: SparkProgram, tmp_path: Path
) -> None:
    bootstrap, topic = places[place], f"cut-{place}"
    create_topics(bootstrap, {topic: {}}, PARTITIONS)
    with Writers(bootstrap, topic).running() as writers:
        writers.wait_for(300)
        with tidelog.connect(bootstrap) as client:
            keys = [TopicPartition(topic, number) for number in range(PARTITIONS)]

            def are_stable() -> bool:
                return sum(client.latest_offsets(keys, isolation="read_committed").values()) > 300

            wait_until(are_stable, "records before the cut that no transaction holds back", PATIENCE_S)
            with writers.in_transaction():
                cut = take_cut(bootstrap, [topic], START)
                ends = client.latest_offsets(cut.cuts)
        options = cut.stream_options(since_start=True)
        history = program.rows("tidelog", **cut.history_options())
        program.stream("live", "tidelog", tmp_path / "live", **options)
        writers.wait_for(600)
        program.stream("live", "tidelog", tmp_path / "live", **options)
    # A transaction was open at the cut: there was more than it takes.
    assert all(ends[key] > cut.cuts[key] for key in cut.cuts)
    program.stream("live", "tidelog", tmp_path / "live", **options)
    assert program.rows("tidelog", **cut.history_options()) == history

    live = pa.concat_tables(written(tmp_path / "live").values())
    both = [row for table in (history, live) for row in _rows(table)]
    assert len(history) > 50
    assert len(live) > 50
    assert max(Counter(place for place, _ in both).values()) == 1
    wanted = Counter(row for row in writers.committed if row[0] >= START)
    assert Counter(row for _, row in both) == wanted
    starts = json.loads(options["startingOffsets"])[topic]
    assert all(offset < starts[str(number)] for (number, offset), _ in _rows(history))
    assert all(offset >= starts[str(number)] for (number, offset), _ in _rows(live))


def _rows(table: pa.Table) -> list[tuple[tuple[int, int], tuple[int, bytes]]]:
    """((partition, offset), (timestamp, value))."""
    times = [us // 1000 for us in table["timestamp"].cast("int64").to_pylist()]
    columns = [table[name].to_pylist() for name in ("partition", "offset", "value")]
    return [((number, offset), (time, value)) for time, number, offset, value in zip(times, *columns, strict=True)]
