"""Streams between Kafka, Tidelog and folders, under kill -9 of Spark's driver and of the brokers: each record exactly once.

Five queries run in one Spark program:

| | from | to | promised |
|---|---|---|---|
| to-tidelog | Kafka 3.9.1 | Tidelog's broker | exactly once |
| to-kafka | Tidelog's broker | Kafka 3.9.1 | exactly once |
| from-folder | the data folder of Kafka while it runs | Tidelog's broker | exactly once |
| to-folder | Tidelog's broker | a folder, straight to segments | exactly once |
| connector | Tidelog's broker, by Spark's own connector | Tidelog's broker, `deliveryGuarantee` at-least-once | nothing lost |

Both sources grow meanwhile, by transactions of which every second one is aborted. What must be in a target is what librdkafka
reads of its source with read_committed; where it is promised once, partition by partition in the same order.

| disturbance | |
|---|---|
| `driver_dies` | driver, JVM and Python's workers are killed at once; another program follows |
| `driver_leaves_workers` | driver and JVM are killed; what commits just then goes on beside the next program, which fences it |
| `kafka_dies`, `tidelog_dies` | a broker is killed and started again; queries that give up are started again |

`make interop` has two of the queries and two of the disturbances: Spark starts a Python for each query, one after another, and a
busy machine took more than the 15 minutes that a test has to start five of them three times.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Producer

import tidelog
from tests.broker.eos.copier import insist
from tests.broker.eos.processes import Served
from tests.interop.gate import first_of
from tests.interop.pipeline_program import Driver, Query
from tests.kafka.brokers import Kafka391
from tests.kafka.clients import consume, create_topics, wait_until_decided
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

SOAK = bool(os.environ.get("TIDELOG_SOAK"))
PARTITIONS = 2
SHARE = 400
"""Records that each partition of a source grows by right before each disturbance."""
BATCH = "160"
"""Offsets of a micro-batch: some five of them in a share of both partitions."""
START_TIMEOUT_S = 600.0
SETTLE_TIMEOUT_S = 600.0
SOURCE = "source"
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}
Rows = list[list[bytes]]
"""Values by partition, in order."""


class Source:
    """A topic that grows by transactions, every second one of which is aborted."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.written = 0
        config = {"transactional.id": "source", "linger.ms": 5, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0} | config)
        insist(self._producer.init_transactions, PATIENCE_S)

    def grow(self, records: int) -> None:
        """Add so many records to each partition."""
        for wanted in (False, True):
            insist(self._producer.begin_transaction)
            for number in range(self.written, self.written + (records if wanted else 20)):
                for partition in range(PARTITIONS):
                    value = b"%d:%d" % (partition, number) if wanted else b"aborted"
                    self._producer.produce(SOURCE, value, b"key-%d" % number, partition, headers=[("n", b"%d" % number)])
            self._producer.flush(PATIENCE_S)
            insist(self._producer.commit_transaction if wanted else self._producer.abort_transaction, PATIENCE_S)
        self.written += records


class Pipelines:
    """The queries, what is done to them, and the count."""

    def __init__(self, folder: Path, kafka: Kafka391, served: Served, names: Collection[str], seed: int) -> None:
        self.folder = folder
        self.kafka = kafka
        self.served = served
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.sink = folder / "sink"
        create_topics(kafka.bootstrap, {SOURCE: {"segment.bytes": "30000"}, "to-kafka": {}}, PARTITIONS)
        create_topics(served.bootstrap, {name: {} for name in (SOURCE, "to-tidelog", "from-folder", "connector")}, PARTITIONS)
        self.sources = {broker.bootstrap: Source(broker.bootstrap) for broker in (kafka, served)}
        self.queries = [query for query in self._queries() if query.name in names]
        self.driver: Driver | None = None
        self.may_fail = False

    def _queries(self) -> Iterator[Query]:
        limit = {"subscribe": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": BATCH, "includeHeaders": "true"}
        committed = {"isolationLevel": "read_committed"} | limit
        for name, source, target in (
            ("to-tidelog", {"kafka.bootstrap.servers": self.kafka.bootstrap}, self.served.bootstrap),
            ("to-kafka", {"kafka.bootstrap.servers": self.served.bootstrap}, self.kafka.bootstrap),
            ("from-folder", {"path": str(self.kafka.data)}, self.served.bootstrap),
            ("to-folder", {"kafka.bootstrap.servers": self.served.bootstrap}, None),
        ):
            place = (
                {"path": str(self.sink), "partitions": str(PARTITIONS)} if target is None else {"kafka.bootstrap.servers": target}
            )
            yield Query(name, "tidelog", source | committed, self._write(name) | place)
        source = {"kafka.bootstrap.servers": self.served.bootstrap, "kafka.isolation.level": "read_committed"}
        place = {"kafka.bootstrap.servers": self.served.bootstrap, "deliveryGuarantee": "at-least-once"}
        yield Query("connector", "kafka", source | limit, self._write("connector") | place)

    def _write(self, name: str) -> dict[str, str]:
        return {"topic": name, "checkpointLocation": str(self.folder / "checkpoints" / name)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.driver is not None:
            self.driver.kill_all()

    def run(self, disturbances: list[str]) -> None:
        for name in disturbances:
            if self.driver is None:
                self._grow(SHARE // 5)  # Each query has something to begin with.
                self._start()
            self._grow(SHARE)
            self._watch(self.rng.randint(1, 8), self.rng.random())
            getattr(self, name)()
            self.counts[name] += 1
        self._grow(SHARE)
        self._stop()
        self._drain()
        self.check()

    def _grow(self, records: int) -> None:
        for source in self.sources.values():
            source.grow(records)

    # --- disturbances ---

    def driver_dies(self) -> None:
        self._stop()

    def driver_leaves_workers(self) -> None:
        assert self.driver is not None
        self.driver.kill_driver()
        self._end()

    def kafka_dies(self) -> None:
        self.kafka.kill()
        self.kafka.start()
        self.may_fail = True

    def tidelog_dies(self) -> None:
        self.served.kill()
        self.served.start()
        self.may_fail = True

    # --- the program ---

    def _start(self, *, drain: bool = False) -> None:
        self.driver = Driver(self.folder, self.queries, drain=drain)
        self.driver.expect("started", START_TIMEOUT_S)

    def _watch(self, batches: int, seconds: float) -> None:
        """Wait for so many micro-batches of any query, and then for a moment: the next ones are somewhere in their middle."""
        assert self.driver is not None
        before = self._done()
        wait_until(lambda: self._done() >= before + batches or self._has_failed(), f"{batches} micro-batches", SETTLE_TIMEOUT_S)
        if self._has_failed():
            self._start_again()
        else:
            wait_until(_after(seconds), "a moment")

    def _done(self) -> int:
        assert self.driver is not None
        return sum(event[0] == "batch" for event in self.driver.look())

    def _has_failed(self) -> bool:
        assert self.driver is not None
        return self.driver.ended() is not None

    def _start_again(self) -> None:
        """As a supervisor does: a query may give up where a broker was gone, and only there."""
        assert self.driver is not None
        assert self.may_fail, f"{self.driver.look()[-3:]}: {self.driver.tail()}"
        self.counts["given up"] += 1
        self._stop()
        self._start()

    def _stop(self) -> None:
        if self.driver is not None:
            self.driver.kill_all()
            self._end()

    def _end(self) -> None:
        assert self.driver is not None
        self.counts.update(event[0] for event in self.driver.look() if event[0] in ("batch", "starved"))
        self.driver = None

    def _drain(self) -> None:
        self._start(drain=True)
        assert self.driver is not None
        self.driver.expect("drained", SETTLE_TIMEOUT_S)
        self.driver.process.wait(PATIENCE_S)
        self._end()

    # --- the count ---

    def check(self) -> None:
        for broker, topics in ((self.kafka, (SOURCE, "to-kafka")), (self.served, (SOURCE, "to-tidelog", "from-folder"))):
            for topic in topics:
                wait_until_decided(broker.bootstrap, topic, PARTITIONS)
        expected = {bootstrap: _values(bootstrap, SOURCE) for bootstrap in self.sources}
        for bootstrap, rows in expected.items():
            assert [len(values) for values in rows] == [self.sources[bootstrap].written] * PARTITIONS
        of_kafka, of_tidelog = expected[self.kafka.bootstrap], expected[self.served.bootstrap]
        for query in self.queries:
            match query.name:
                case "to-tidelog" | "from-folder":
                    _same(query.name, of_kafka, _values(self.served.bootstrap, query.name))
                case "to-kafka":
                    _same(query.name, of_tidelog, _values(self.kafka.bootstrap, query.name))
                case "to-folder":
                    _same(query.name, of_tidelog, _folder_values(self.sink, query.name))
                case "connector":
                    for found, wanted in zip(_values(self.served.bootstrap, query.name), of_tidelog, strict=True):
                        assert set(found) == set(wanted), "connector: lost, or never there"
                        self.counts["twice"] += len(found) - len(wanted)
                case other:
                    raise AssertionError(f"{other} is not checked")


def _values(bootstrap: str, topic: str) -> Rows:
    """Read a topic with librdkafka; headers are those that its record was given."""
    found = []
    for partition in range(PARTITIONS):
        rows = consume(bootstrap, topic, partition, isolation="read_committed")
        for row in rows:
            assert row.key is not None
            assert row.value is not None
            number = row.value.rpartition(b":")[2]
            assert (row.key, row.headers) == (b"key-" + number, (("n", number),))
        found.append([row.value or b"" for row in rows])
    return found


def _folder_values(folder: Path, topic: str) -> Rows:
    table = tidelog.scan(folder, topic, columns=["partition", "value"]).read_all()
    found: Rows = [[] for _ in range(PARTITIONS)]
    for partition, value in zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True):
        found[partition].append(value)
    return found


def _same(name: str, expected: Rows, found: Rows) -> None:
    for partition, (wanted, got) in enumerate(zip(expected, found, strict=True)):
        if wanted != got:
            lost, more = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
            at = next(
                (at for at, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]), min(len(wanted), len(got))
            )
            raise AssertionError(
                f"{name}-{partition}: {len(got)} records of {len(wanted)}, lost {list(lost)[:5]} ({lost.total()}), "
                f"too many {list(more)[:5]} ({more.total()}), "
                f"the first other one at {at}: {got[at : at + 3]}, expected {wanted[at : at + 3]}"
            )


def _after(seconds: float) -> Callable[[], bool]:
    from time import monotonic

    until = monotonic() + seconds
    return lambda: monotonic() >= until


FEW = (("to-kafka", "to-folder"), ["driver_leaves_workers", "tidelog_dies"])
ALL = (("to-tidelog", "to-kafka", "from-folder", "to-folder", "connector"), ["kafka_dies", *FEW[1]])
"""Queries, and what is done to them. In the end the driver dies anyway."""


@pytest.mark.parametrize("seed", range(8) if SOAK else [1])
@pytest.mark.parametrize(
    ("names", "kinds"),
    first_of(FEW, ALL, why="reading under kills: test_stream_kills; writing to brokers that are killed: test_sink_brokers"),
    ids=["two queries", "all queries"],
)
def test_each_record_once(tmp_path: Path, names: tuple[str, ...], kinds: list[str], seed: int) -> None:
    disturbances = ["driver_dies", *kinds] * 3 if SOAK else list(kinds)
    random.Random(seed).shuffle(disturbances)
    with (
        Kafka391(tmp_path / "kafka", PROPERTIES) as kafka,
        Served(tmp_path / "tidelog", PROPERTIES) as served,
        Pipelines(tmp_path, kafka, served, names, seed) as pipelines,
    ):
        pipelines.run(disturbances)
        assert pipelines.counts["batch"] > len(disturbances)
