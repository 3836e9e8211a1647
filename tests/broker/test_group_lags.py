"""How far behind a group is, exactly: three ways to find it out, held against a plain list of what the log holds.

Random logs have timestamps out of order, gaps and empty batches as compaction leaves them, transactions that were committed and
aborted and are still open, a log start in the middle. The ways: a client over the wire, a folder's reader, the broker's metrics.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import tidelog
from tests.broker.conftest import RunningBroker
from tests.examples import examples
from tidelog.broker.server.scraped import group_lags
from tidelog.broker.server.scraped.group_lags import GroupLags
from tidelog.broker.server.scraped.prometheus import BrokerCollector, snapshot
from tidelog.client.client import Client
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.client.consumer_groups.next_records import next_records
from tidelog.clock import ManualClock
from tidelog.groups.lag import NextRecord
from tidelog.model import Isolation, TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2, build_empty_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record
from tidelog.sources.files.folder_groups import next_record

NOW = 1_373_414_400_000
names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("lags") / "data"
    # Retention is passed here, not done: its round would come when the tests have taken 30 s of real time.
    running = RunningBroker(
        folder,
        ManualClock(NOW),
        offsets_topic_num_partitions=1,
        auto_create_topics_enable=False,
        log_initial_task_delay_ms=2**40,
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[Client]:
    with tidelog.connect(broker.bootstrap_servers, clock=broker.clock) as connected:
        yield connected


@pytest.fixture
def lags(broker: RunningBroker) -> GroupLags:
    return GroupLags(broker.node, broker.on_loop)


# --- Random logs


@dataclass
class Model:
    """A log, as plain lists. A record: offset, timestamp, and the transaction it is of, None for none."""

    batches: list[bytes] = field(default_factory=list)
    records: list[tuple[int, int, int | None]] = field(default_factory=list)
    ended: dict[int, ControlType] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    first_of: dict[int, int] = field(default_factory=dict)
    end: int = 0
    start: int = 0
    transactions: int = 0

    def add(self, timestamps: list[int], gaps: list[int], producer_id: int | None, codec: Codec) -> None:
        made: list[Record] = []
        for timestamp, gap in zip(timestamps, gaps, strict=False):
            offset = self.end + gap
            made.append(Record(offset, NOW + timestamp, CREATE_TIME, None, b"v"))
            self.end = offset + 1
        transaction = None
        producer = Producer()
        if producer_id is not None:
            if producer_id not in self.open:
                self.transactions += 1
                self.open[producer_id] = self.transactions
                self.first_of[self.transactions] = made[0].offset
            transaction = self.open[producer_id]
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + made[-1].offset - made[0].offset + 1
            producer = Producer(producer_id, 0, sequence)
        self.records += [(record.offset, record.timestamp, transaction) for record in made]
        self.batches.append(
            bytes(build_batch_v2(made, codec=codec, leader_epoch=0, producer=producer, is_transactional=transaction is not None))
        )

    def leave_empty(self, count: int) -> None:
        self.batches.append(bytes(build_empty_batch_v2(self.end, self.end + count - 1, leader_epoch=0, max_timestamp=NOW)))
        self.end += count

    def finish(self, producer_id: int, kind: ControlType) -> None:
        if producer_id in self.open:
            self.ended[self.open.pop(producer_id)] = kind
            marker = build_end_txn_marker(self.end, NOW + 5_000, kind, Producer(producer_id, 0, -1), leader_epoch=0)
            self.batches.append(bytes(marker))
            self.end += 1

    @property
    def stable_end(self) -> int:
        return min([self.first_of[one] for one in self.open.values()], default=self.end)

    def next_record(self, position: int, isolation: str) -> NextRecord | None:
        """A plain reading of all records."""
        for offset, timestamp, transaction in self.records:
            if offset < max(position, self.start):
                continue
            if isolation == "read_uncommitted" or transaction is None:
                if isolation == "read_uncommitted" or offset < self.stable_end:
                    return NextRecord(offset, timestamp)
            elif self.ended.get(transaction) is ControlType.COMMIT and offset < self.stable_end:
                return NextRecord(offset, timestamp)
        return None


times = st.integers(-100_000, 100_000)
steps = st.one_of(
    st.tuples(
        st.just("add"),
        st.lists(times, min_size=1, max_size=4),
        st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=4, max_size=4),
        st.sampled_from([None, None, 7, 8, 9]),
        st.sampled_from([Codec.NONE, Codec.LZ4]),
    ),
    st.tuples(st.just("empty"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.sampled_from([7, 8, 9]), st.sampled_from([ControlType.ABORT, ControlType.COMMIT])),
)


@st.composite
def models(draw: Any) -> Model:
    model = Model()
    for step in draw(st.lists(steps, min_size=1, max_size=14)):
        if step[0] == "add":
            model.add(*step[1:])
        elif step[0] == "empty":
            model.leave_empty(step[1])
        else:
            model.finish(*step[1:])
    model.start = draw(st.integers(0, model.end) | st.just(0))
    return model


def write(broker: RunningBroker, model: Model) -> TopicPartition:
    """Have a topic with that log, whose segments are small."""
    key = TopicPartition(next(names), 0)

    def work() -> None:
        broker.node.manager.create_topic(key.topic, 1, {"segment.bytes": 400})
        log = broker.node.manager.log(*key)
        for batch in model.batches:
            log.append_as_follower(batch)
        log.update_high_watermark(log.log_end_offset)
        model.start = min(model.start, log.high_watermark)
        log.maybe_increment_log_start_offset(model.start)

    broker.on_loop(work)
    return key


@examples(80)
@given(model=models(), data=st.data())
def test_the_next_record_is_what_a_plain_reading_finds(
    broker: RunningBroker, client: Client, model: Model, data: st.DataObject
) -> None:
    key = write(broker, model)
    ends = {"read_committed": model.stable_end, "read_uncommitted": model.end}
    positions = data.draw(st.lists(st.integers(0, model.end + 1), min_size=1, max_size=5, unique=True))
    with LogDir(broker.data_dir).log(*key) as log:
        # The files are a running broker's: its checkpoints are not written yet.
        log._given_high_watermark, log._given_log_start_offset = model.end, model.start
        for position in positions:
            for isolation in get_args(Isolation):
                at, end = max(position, model.start), ends[isolation]
                expected = model.next_record(position, isolation)
                assert next_records(client.cluster, {key: (at, end)}, isolation)[key] == expected
                assert next_record(log, at, end, isolation) == expected
    position = positions[0]
    commit_offsets(client.cluster, key.topic, {key: position})
    expected = model.next_record(position, "read_committed")
    (lag,) = client.group_lag(key.topic).partitions
    assert lag.next_record == expected
    assert lag.lag_ms == (0 if expected is None else NOW - expected.timestamp)
    assert lag.lag == max(0, max(model.stable_end, model.start) - max(position, model.start))
    assert lag.lost == max(0, model.start - position)
    lags = GroupLags(broker.node, broker.on_loop)
    for _ in range(2):  # Once read, once remembered.
        told = dict(lags.scrape().lags)[key.topic]
        assert (told.next_record, told.lag, told.lag_ms) == (lag.next_record, lag.lag, lag.lag_ms)
    broker.on_loop(lambda: broker.node.manager.delete_topic(key.topic))


# --- Metrics


def produce(broker: RunningBroker, topic: str, timestamps: list[int]) -> None:
    with tidelog.connect(broker.bootstrap_servers) as client:
        for timestamp in timestamps:
            client.produce(topic, b"v", timestamp=timestamp, partition=0)


def scraped(broker: RunningBroker, lags: GroupLags, topic: str) -> dict[str, float]:
    """The metrics of a group of the topic's name."""
    registry = CollectorRegistry()
    registry.register(BrokerCollector(lambda: snapshot(broker.node, broker.on_loop), lags.scrape))
    return {
        sample.name.removeprefix("tidelog_group_"): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.labels.get("group") == topic
    }


@pytest.fixture
def topic(broker: RunningBroker) -> Iterator[str]:
    name = next(names)
    broker.create_topic(name, 1, retention_ms=10_000_000)
    yield name
    broker.on_loop(lambda: broker.node.manager.delete_topic(name))


def test_metrics_from_lag_to_never(broker: RunningBroker, client: Client, lags: GroupLags, topic: str) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    now = clock.now_ms()
    key = TopicPartition(topic, 0)
    produce(broker, topic, [now - 60_000, now - 50_000, now - 40_000, now + 5_000])
    commit_offsets(client.cluster, topic, {key: 1})
    assert scraped(broker, lags, topic) == {
        "members": 0,
        "lag_records": 3,
        "lag_seconds": 50,
        "retention_seconds": (5_000 + 10_000_000 + 1) / 1000,  # The youngest of its segment keeps it.
    }
    clock.advance(30_000)
    assert scraped(broker, lags, topic)["time_to_end_seconds"] == float("inf")
    commit_offsets(client.cluster, topic, {key: 3})
    told = scraped(broker, lags, topic)
    assert told["lag_seconds"] == (now + 30_000 - (now + 5_000)) / 1000
    assert told["time_to_end_seconds"] == 15  # Two in 30 s, and nothing comes.
    produce(broker, topic, [now + 30_000] * 3)
    assert scraped(broker, lags, topic)["time_to_end_seconds"] == float("inf")
    commit_offsets(client.cluster, topic, {key: 7})
    told = scraped(broker, lags, topic)
    assert (told["lag_records"], told["lag_seconds"], told["time_to_end_seconds"]) == (0, 0, 0)
    assert "retention_seconds" not in told


def test_a_record_of_the_future(broker: RunningBroker, client: Client, lags: GroupLags, topic: str) -> None:
    produce(broker, topic, [broker.clock.now_ms() + 7_000])
    commit_offsets(client.cluster, topic, {TopicPartition(topic, 0): 0})
    assert scraped(broker, lags, topic)["lag_seconds"] == -7


def test_what_is_known_is_not_read_again(
    broker: RunningBroker, client: Client, lags: GroupLags, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = TopicPartition(topic, 0)
    now = broker.clock.now_ms()
    produce(broker, topic, [now - 3_000, now - 2_000])
    commit_offsets(client.cluster, topic, {key: 0})
    searched: list[int] = []
    step = group_lags._Search.step

    def counted(self: Any) -> Any:
        searched.append(self.facts.committed_offset)
        return step(self)

    monkeypatch.setattr(group_lags._Search, "step", counted)
    for _ in range(3):
        lags.scrape()
    produce(broker, topic, [now - 1_000])
    lags.scrape()
    assert searched == [0]
    commit_offsets(client.cluster, topic, {key: 1})
    lags.scrape()
    assert searched == [0, 1]
    broker.on_loop(lambda: broker.node.manager.log(*key).delete_records(2))
    assert scraped(broker, lags, topic)["lag_seconds"] == 1
    assert searched == [0, 1, 1]
    commit_offsets(client.cluster, topic, {key: 3})
    for _ in range(2):
        assert scraped(broker, lags, topic)["lag_seconds"] == 0
    assert searched == [0, 1, 1, 3]


def test_there_is_a_limit(
    broker: RunningBroker, client: Client, lags: GroupLags, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_offsets(client.cluster, topic, {TopicPartition(topic, 0): 0})
    all_there_are = len(lags.scrape().lags)
    monkeypatch.setattr(group_lags, "MAX_PARTITIONS", 0)
    monkeypatch.setattr(group_lags, "AT_ONCE", 1)
    found = lags.scrape()
    assert (found.lags, found.left_out) == ([], all_there_are)
    assert topic in found.members


def test_bytes_that_are_not_in_memory(
    broker: RunningBroker, client: Client, lags: GroupLags, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = broker.clock.now_ms()
    produce(broker, topic, [now - 3_000])
    commit_offsets(client.cluster, topic, {TopicPartition(topic, 0): 0})
    warmed: list[str] = []
    step: Callable[[Any], Any] = group_lags._Search.step

    class Missing:
        def prefetch(self) -> None:
            warmed.append(topic)

    monkeypatch.setattr(
        group_lags._Search, "step", lambda self: step(self) if warmed or self.facts.key.topic != topic else Missing()
    )
    assert scraped(broker, lags, topic)["lag_seconds"] == 3
    assert warmed == [topic]


def test_retention_by_size_and_none(broker: RunningBroker, client: Client, lags: GroupLags) -> None:
    clock = broker.clock
    assert isinstance(clock, ManualClock)
    now = clock.now_ms()
    settings_of: dict[str, dict[str, Any]] = {
        "small": {"retention_ms": -1, "retention_bytes": 0, "segment_bytes": 100},
        "roomy": {"retention_ms": -1, "retention_bytes": 1_000_000},
        "kept": {"retention_ms": -1},
        "compacted": {"cleanup_policy": "compact"},
    }
    for name, properties in settings_of.items():
        broker.create_topic(name, 1, **properties)
        key = b"k"
        client.produce_many(name, [tidelog.NewRecord(b"v" * 20, key, now, partition=0) for _ in range(4)], batch_bytes=1)
        commit_offsets(client.cluster, name, {TopicPartition(name, 0): 1})
    told = {name: scraped(broker, lags, name).get("retention_seconds") for name in settings_of}
    assert told == {"small": 0, "roomy": None, "kept": float("inf"), "compacted": float("inf")}
    clock.advance(10_000)
    client.produce_many("roomy", [tidelog.NewRecord(b"v" * 20, b"k", now, partition=0) for _ in range(4)], batch_bytes=1)
    seconds = scraped(broker, lags, "roomy")["retention_seconds"]
    size = broker.on_loop(lambda: broker.node.manager.log("roomy", 0).segments.size_bytes)
    assert seconds == pytest.approx(1_000_000 / (0.4 * size / 8), rel=0.01)
    for name in settings_of:
        broker.on_loop(lambda name=name: broker.node.manager.delete_topic(name))  # type: ignore[misc]
