"""A folder when it is not tidy: a transaction open, a broker killed. What a reader says then, the broker says too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import tidelog
from tests.interop import live_topics
from tests.interop.live_topics import LiveTopic, Writer, wait_acknowledged
from tests.interop.rows import rows_of
from tests.kafka import Kafka391
from tests.kafka.clients import NewRow, consume, offset_for_time, offset_of_max_timestamp, produce, watermarks
from tests.kafka.java import wait_until
from tests.kafka.pausing import go_on, pause
from tests.patience import PATIENCE_S

T = live_topics.T


@pytest.fixture
def killed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("killed"), live_topics.BROKER) as running:
        yield running


@pytest.mark.parametrize("ends_well", [True, False], ids=["commit", "abort"])
def test_an_open_transaction_is_withheld(broker: Kafka391, ends_well: bool) -> None:
    topic = f"open-transaction-{'commit' if ends_well else 'abort'}"
    broker.create_topic(topic, segment_bytes=16384, index_interval_bytes=512)
    produce(broker.bootstrap, topic, [NewRow(b"k", b"before %d" % n, T + n) for n in range(300)])
    config = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0}
    producer = Producer(config | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for n in range(300):
        producer.produce(topic, b"inside %d" % n, b"k", 0, timestamp=T + 1000 + n)
    producer.flush(PATIENCE_S)
    produce(broker.bootstrap, topic, [NewRow(b"k", b"after %d" % n, T + 2000 + n) for n in range(300)])

    def expect_the_same(committed: int) -> None:
        for isolation in ("read_committed", "read_uncommitted"):
            ours = rows_of(tidelog.scan(broker.data, topic, isolation=isolation))
            assert ours == consume(broker.bootstrap, topic, isolation=isolation)
            assert len(ours) == (committed if isolation == "read_committed" else 900)

    wait_checkpointed(broker, topic, 900)
    expect_the_same(committed=300)
    with tidelog.LogDir(broker.data).log(topic, 0) as log:
        assert log.last_stable_offset == 300
        # Kafka's answer for a time is bounded by the last stable offset in the same way.
        assert tidelog.find_offset(log, T + 1000, "read_committed") is None
        inside = tidelog.find_offset(log, T + 1000)
        assert inside is not None
        assert inside.offset == 300
    (producer.commit_transaction if ends_well else producer.abort_transaction)(PATIENCE_S)
    # The marker is written a moment after the coordinator has said yes.
    wait_checkpointed(broker, topic, 901)
    expect_the_same(committed=900 if ends_well else 600)


def test_a_killed_brokers_folder_is_read_as_the_broker_reads_it_again(killed_broker: Kafka391) -> None:
    """Indexes have their zeroed tails, checkpoints are old, and the last segments were never closed."""
    broker = killed_broker
    topics: list[LiveTopic] = live_topics.create(broker, {"grows": {}, "shrinks": live_topics.SETTINGS["shrinks"]})
    with Writer(broker, topics, rounds_s=0.005):
        wait_acknowledged(topics, 3000)
        wait_until(lambda: is_stopped_untidy(broker, topics), "a moment at which every topic has an index with a zeroed tail")
        for topic in topics:
            topic.is_killed = True
        broker.kill()
        acknowledged = [topic.acknowledged for topic in topics]
        before = [rows_of(tidelog.scan(broker.data, topic.name)) for topic in topics]
        answers = [by_time(broker, topic) for topic in topics]
        for topic, rows, count in zip(topics, before, acknowledged, strict=True):
            first = rows[0].offset
            assert rows == [topic.row(n) for n in range(first, first + len(rows))]
            assert rows[-1].offset >= count - 1
            assert has_zeroed_tail(broker, topic)
        broker.start()
    for topic, rows, (targets, ours) in zip(topics, before, answers, strict=True):
        # The writer went on when the broker was back; what was there before is still there, but for what retention took.
        wait_for_retention(broker, topic)
        served = consume(broker.bootstrap, topic.name)
        ends = served[0].offset, rows[-1].offset
        assert [row for row in served if row.offset <= ends[1]] == [row for row in rows if row.offset >= ends[0]]
        for target, answer in zip(targets, ours, strict=True):
            told = offset_for_time(broker.admin, topic.name, 0, target)
            # Asked after that: retention may be still at it.
            if answer[0] >= topic.log_start(broker):
                assert told == answer
        largest = offset_of_max_timestamp(broker.admin, topic.name, 0)
        assert isinstance(largest, tuple)
        assert largest[1] >= max(row.timestamp for row in rows)


def is_stopped_untidy(broker: Kafka391, topics: list[LiveTopic]) -> bool:
    """Stop the broker's process, and let it go on if a topic has no index with a zeroed tail: its segment has just rolled."""
    assert broker.process is not None
    pause(broker.process.pid)
    if all(has_zeroed_tail(broker, topic) for topic in topics):
        return True
    go_on(broker.process.pid)
    return False


def has_zeroed_tail(broker: Kafka391, topic: LiveTopic) -> bool:
    """Return whether an index has its full size and no last entry, as while its segment is written."""
    indexes = [path.read_bytes() for path in broker.partition_folder(topic.name).glob("*.timeindex")]
    return any(len(index) == 2400 and index[-12:] == bytes(12) for index in indexes)


def wait_checkpointed(broker: Kafka391, topic: str, high_watermark: int) -> None:
    """Wait for the high-watermark checkpoint: a folder's read_committed reader knows nothing decided after it."""
    checkpoint = broker.data / "replication-offset-checkpoint"
    wait_until(lambda: f"{topic} 0 {high_watermark}" in checkpoint.read_text().splitlines(), f"{high_watermark} in {checkpoint}")


def wait_for_retention(broker: Kafka391, topic: LiveTopic) -> None:
    """Wait until it has nothing to do: without its oldest segment, the log of a topic to which nobody writes is small enough."""
    limit = live_topics.SETTINGS[topic.name].get("retention.bytes")
    folder = broker.partition_folder(topic.name)

    def is_done() -> bool:
        try:
            sizes = [path.stat().st_size for path in sorted(folder.glob("*.log"))]
        except FileNotFoundError:
            return False  # It has just gone.
        return sum(sizes[1:]) < int(limit or 0)

    if limit is not None:
        wait_until(is_done, f"the retention of {topic.name}")
        start = min(int(path.stem) for path in folder.glob("*.log"))
        # Files go a moment before the broker says so.
        wait_until(lambda: watermarks(broker.bootstrap, topic.name)[0] >= start, f"{topic.name} to start at {start}")


def by_time(broker: Kafka391, topic: LiveTopic) -> tuple[list[int], list[tuple[int, int]]]:
    """Return times and Tidelog's answers for them."""
    targets = [topic.timestamp(n) for n in range(topic.acknowledged - 900, topic.acknowledged, 30)]
    with tidelog.LogDir(broker.data).log(topic.name, 0) as log:
        found = [tidelog.find_offset(log, target) for target in targets]
    assert None not in found
    return targets, [(answer.offset, answer.timestamp) for answer in found if answer is not None]
