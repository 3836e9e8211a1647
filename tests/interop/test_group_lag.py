"""Groups by time on Apache Kafka 3.9.1 and 2.4.1: what Tidelog's client says, and what a consumer there is really handed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

import tidelog
from tests.cli.conftest import run, run_ok
from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import consume, create_topics, flush, offset_for_time, wait_until_ended
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.client.client import Client
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.clock import ManualClock, SystemClock
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.groups.lag import Precision
from tidelog.model import OFFSETS_TOPIC, Isolation, TopicPartition

DAY = 1_373_414_400_000  # 2013-07-10
RECORDS = 400


@pytest.fixture(scope="module")
def old_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka241]:
    with Kafka241(tmp_path_factory.mktemp("kafka-2.4.1")) as running:
        yield running


def write_transactions(bootstrap: str, topic: str, chance: random.Random) -> Producer:
    """Write transactions of three producers, one among the other, times out of order; return one whose last one is open."""
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 0, "transaction.timeout.ms": 600_000}
    ids = [f"{topic}-{n}" for n in range(3)]
    producers = [Producer(config | {"transactional.id": each}) for each in ids]
    for producer in producers:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for _ in range(RECORDS):
        producer = chance.choice(producers)
        producer.produce(topic, b"v", key=b"%d" % chance.randrange(9), timestamp=DAY + chance.randrange(1_000_000), partition=0)
        producer.flush()
        if not chance.randrange(8):
            (producer.commit_transaction if chance.randrange(2) else producer.abort_transaction)(PATIENCE_S)
            producer.begin_transaction()
    for producer in producers[1:]:
        producer.commit_transaction(PATIENCE_S)
    producers[0].produce(topic, b"open", timestamp=DAY, partition=0)
    producers[0].flush()
    producers[1].begin_transaction()
    producers[1].produce(topic, b"behind", timestamp=DAY + 7, partition=0)
    producers[1].commit_transaction(PATIENCE_S)
    wait_until_ended(bootstrap, *ids[1:])
    return producers[0]


def check_all_positions(client: Client, bootstrap: str, topic: str, chance: random.Random) -> None:
    """Hold lags at many committed offsets against a plain reading of all records by librdkafka."""
    key = TopicPartition(topic, 0)
    isolations: tuple[Isolation, ...] = get_args(Isolation)
    handed = {isolation: consume(bootstrap, topic, isolation=isolation) for isolation in isolations}
    end = client.latest_offsets([key])[key]
    for position in sorted({0, end, *chance.choices(range(end + 1), k=25)}):
        commit_offsets(client.cluster, topic, {key: position})
        for isolation, rows in handed.items():
            (lag,) = client.group_lag(topic, isolation=isolation).partitions
            expected = next(((row.offset, row.timestamp) for row in rows if row.offset >= position), None)
            assert lag.next_record == expected, (position, isolation)
            assert lag.lag_ms == (0 if expected is None else DAY - expected[1])
    for _ in range(8):
        at, time_ms = chance.randrange(end + 1), DAY + chance.randrange(-10, 1_100_000)
        commit_offsets(client.cluster, topic, {key: at})
        (found,) = client.reset_group(topic, time_ms, isolation="read_uncommitted", dry_run=True)
        (committed,) = client.reset_group(topic, time_ms, dry_run=True)
        for one, isolation in ((found, isolations[0]), (committed, isolations[1])):
            assert one.is_exact
            between = range(min(at, one.new_offset), max(at, one.new_offset))
            assert one.again + one.skipped == sum(row.offset in between for row in handed[isolation])


def fixed(bootstrap: str) -> Client:
    return tidelog.connect(bootstrap, clock=ManualClock(DAY))


def test_transactions(broker: Kafka391) -> None:
    chance = random.Random(7)
    create_topics(broker.bootstrap, {"lag-transactions": {}})
    still_open = write_transactions(broker.bootstrap, "lag-transactions", chance)
    with fixed(broker.bootstrap) as client:
        check_all_positions(client, broker.bootstrap, "lag-transactions", chance)
        for time_ms in (DAY - 1, DAY + 500_000, DAY + 2_000_000):
            (found,) = client.reset_group("lag-transactions", time_ms, isolation="read_uncommitted")
            told = offset_for_time(broker.admin, "lag-transactions", 0, time_ms)
            assert found.new_offset == (told[0] if isinstance(told, tuple) else found.new_offset)
            (committed,) = [p.committed_offset for p in client.group_lag("lag-transactions").partitions]
            assert committed == found.new_offset
    still_open.abort_transaction(PATIENCE_S)


def test_compacted(broker: Kafka391) -> None:
    chance = random.Random(8)
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "2000"}
    create_topics(broker.bootstrap, {"lag-compacted": settings})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(RECORDS):
        producer.produce("lag-compacted", b"v", key=b"%d" % chance.randrange(40), timestamp=DAY + chance.randrange(1_000))
        flush(producer)
    log = Path(broker.partition_folder("lag-compacted"))
    checkpoint = broker.data / names.CLEANER_CHECKPOINT

    def is_finished() -> bool:
        """Whether the cleaner, which may have begun before all was written, was everywhere but in the active segment."""
        active = max(int(path.stem) for path in log.glob("*.log"))
        return read_offset_checkpoint(checkpoint).get(TopicPartition("lag-compacted", 0)) == active

    wait_until(is_finished, "the cleaner")
    assert len(consume(broker.bootstrap, "lag-compacted")) < RECORDS / 2
    with fixed(broker.bootstrap) as client:
        check_all_positions(client, broker.bootstrap, "lag-compacted", chance)


def committed_by_a_consumer(bootstrap: str, topic: str, group: str, count: int) -> Consumer:
    """Let a consumer of a group read so many records, committing every tenth of them; return it, still a member."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    read = 0
    while read < count:
        message = consumer.poll(PATIENCE_S)
        if message is None:
            raise TimeoutError(f"{group}: nothing after {read} records")
        assert message.error() is None, message.error()
        read += 1
        if read % 10 == 0:
            consumer.commit(asynchronous=False)
    return consumer


def live_group(bootstrap: str, topic: str) -> None:
    """A consumer reads half of a topic: its group's rates, its member, a refusal, and then a reset."""
    now_ms = SystemClock().now_ms()
    with tidelog.connect(bootstrap) as client:
        client.produce_many(
            topic, [tidelog.NewRecord(b"v", timestamp=now_ms - 60_000 + n * 1_000, partition=0) for n in range(40)]
        )
        consumer = committed_by_a_consumer(bootstrap, topic, topic, 20)
        found = client.group_lag(topic)
        (member,) = found.description.members
        assert (found.description.state, member.assignment) == ("Stable", (TopicPartition(topic, 0),))
        (lag,) = found.partitions
        assert (lag.committed_offset, lag.lag) == (20, 20)
        assert lag.next_record == (20, now_ms - 40_000)
        assert lag.lag_ms == lag.now_ms - (now_ms - 40_000)
        assert lag.topic_per_second is None or lag.topic_per_second >= 0
        assert (lag.retention.precision, lag.retention.goes_ms) == (Precision.EARLIEST, now_ms - 40_000 + 3_600_001)
        refused = run("groups", "reset", bootstrap, topic, "--to", "earliest", "--execute")
        assert refused.exit_code == 1
        assert "has 1 member: its offsets can be set only while it has none" in refused.error
        consumer.close()
        wait_until(
            lambda: any(one.group == topic and one.state in ("Empty", None) for one in client.groups()),
            f"{topic} without members",
        )
        (line,) = run_ok("groups", "reset", bootstrap, topic, "--to", f"{now_ms - 50_000}", "--execute", "--json").json_lines
        assert (line["old_offset"], line["new_offset"], line["read_again"], line["is_exact"]) == (20, 10, 10, True)
    consumer = committed_by_a_consumer(bootstrap, topic, topic, 10)
    (at,) = consumer.committed([Place(topic, 0)], timeout=PATIENCE_S)
    assert at.offset == 20
    consumer.close()


def test_a_living_group(broker: Kafka391) -> None:
    create_topics(broker.bootstrap, {"lag-live": {"retention.ms": "3600000"}})
    live_group(broker.bootstrap, "lag-live")
    addresses = {"broker": broker.bootstrap, "folder": str(broker.data)}
    told: dict[str, Any] = {}

    def says_the_same() -> bool:
        """The folder's checkpoints come a little later."""
        for name, source in addresses.items():
            lines = run_ok("groups", "describe", source, "lag-live", "--json", clock=ManualClock(DAY)).json_lines
            told[name] = [{key: value for key, value in line.items() if not key.startswith("retention")} for line in lines]
        return bool(told["broker"] == told["folder"])

    wait_until(says_the_same, "the folder says the same as its broker", PATIENCE_S)
    assert told["broker"][-1]["committed_offset"] == 20
    assert "lag-live" in run_ok("groups", "list", broker.data).stdout
    assert OFFSETS_TOPIC not in run_ok("groups", "list", broker.data).stdout


def test_an_old_broker(old_broker: Kafka241) -> None:
    chance = random.Random(9)
    create_topics(old_broker.bootstrap, {"lag-old": {"retention.ms": "3600000"}, "lag-old-transactions": {}})
    live_group(old_broker.bootstrap, "lag-old")
    still_open = write_transactions(old_broker.bootstrap, "lag-old-transactions", chance)
    with fixed(old_broker.bootstrap) as client:
        check_all_positions(client, old_broker.bootstrap, "lag-old-transactions", chance)
    still_open.abort_transaction(PATIENCE_S)
