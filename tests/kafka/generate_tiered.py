"""Make the golden tiered topics again: `python -m tests.kafka.generate_tiered OUT [--aiven-jars FOLDER]`.

Kafka 3.9.1 fills its topics, and copies closed segments to remote storage: to LocalTieredStorage, or by Aiven's plugin, if the
folder of its jars is given (no registry has them: docs/tiered-storage.md says how to build them). OUT then has its data folder,
what is in remote storage, and what its consumer and its look-ups answered.

| topic | what it shows |
|---|---|
| `orders` | two leader epochs, late records, aborted and committed transactions, a log start inside a remote segment |
| `short` | retention deleted its oldest remote segments |
| `gone` | deleted, with its remote segments |
| `plain` | not tiered |
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place

from tests.kafka.clients import NewRow, consume, flush, produce, wait_until_decided
from tests.kafka.java import wait_until
from tests.kafka.tiered import TOPIC, TieredKafka
from tests.patience import PATIENCE_S
from tidelog.metadata.remote_log_records import SegmentState
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, TopicPartition
from tidelog.sources.opening import open_source

START_MS = 1_373_414_400_000
TOPICS = ("orders", "short", "plain")


def rows(count: int, seed: int, start_ms: int = START_MS) -> list[NewRow]:
    """Records, one a second, of which some are early or late by a minute, and one is an hour early."""
    chance = random.Random(seed)
    shifts = [chance.choice((0, 0, 0, -60_000, 60_000)) for _ in range(count)]
    shifts[count // 3] = 3_600_000
    return [NewRow(b"k%d" % (i % 7), chance.randbytes(20).hex().encode(), start_ms + i * 1000 + shifts[i]) for i in range(count)]


def transact(broker: TieredKafka, topic: str, commit: bool, start_ms: int) -> None:
    """Produce ten records in a transaction, and end it."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"golden-{commit}", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for i in range(10):
        producer.produce(topic, b"in transaction %d" % i, b"t", partition=0, timestamp=start_ms + i)
    flush(producer)
    (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)


def fill(broker: TieredKafka) -> None:
    """Fill the topics and wait until they are tiered."""
    broker.create_topics({"orders": TOPIC, "gone": TOPIC, "plain": {"segment.bytes": "4096"}})
    broker.create_topic("short", config=TOPIC)
    for topic, count in (("gone", 60), ("short", 240), ("plain", 60)):
        produce(broker.bootstrap, topic, rows(count, 3), batch_records=5)
    produce(broker.bootstrap, "orders", rows(150, 1), batch_records=5)
    transact(broker, "orders", False, START_MS + 160_000)
    transact(broker, "orders", True, START_MS + 170_000)
    for topic in ("orders", "gone", "short"):
        broker.wait_until_tiered(topic)
    broker.stop()
    broker.start()  # The next leader epoch.
    produce(broker.bootstrap, "orders", rows(120, 2, START_MS + 200_000), batch_records=5)
    broker.wait_until_tiered("orders")
    broker.admin.delete_records([Place("orders", 0, 33)])[Place("orders", 0)].result(PATIENCE_S)
    broker.alter_topic("short", {"retention.bytes": "5000"})
    broker.admin.delete_topics(["gone"])["gone"].result(PATIENCE_S)
    del broker.topics["gone"]

    def is_deleted() -> bool:
        remote = broker.opened().remote.partitions.items()
        states = {
            name: [one.state for key, known in remote for one in known.values() if key.topic == name]
            for name in ("short", "gone")
        }
        done = SegmentState.DELETE_SEGMENT_FINISHED
        return (
            states["short"].count(done) >= 2
            and set(states["short"]) <= {done, SegmentState.COPY_SEGMENT_FINISHED}
            and set(states["gone"]) <= {done}
        )

    wait_until(is_deleted, "retention", PATIENCE_S)
    wait_until_decided(broker.bootstrap, "orders", 1)


def answers(broker: TieredKafka, topic: str) -> dict[str, Any]:
    """Return what the broker says of a topic's partition."""
    found = consume(broker.bootstrap, topic)
    committed = consume(broker.bootstrap, topic, isolation="read_committed")
    times = sorted({row.timestamp + shift for row in found for shift in (0, 1)})[::7]
    key = TopicPartition(topic, 0)
    with open_source(broker.bootstrap) as source:
        targets = (EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED, *times)
        places = {target: source.find({key: target})[key] for target in targets}
    return {
        "rows": [(row.offset, row.timestamp, (row.key or b"").decode(), (row.value or b"").decode()) for row in found],
        "read_committed_offsets": [row.offset for row in committed],
        "list_offsets": [(target, *((-1, -1) if place is None else place[:2])) for target, place in places.items()],
    }


def _leave_out(checkpoint: Path, topics: tuple[str, ...]) -> None:
    """Remove topics whose folders are not kept."""
    version, _, *lines = checkpoint.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(topics)]
    checkpoint.write_text("".join(f"{line}\n" for line in (version, str(len(kept)), *kept)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the golden tiered topics again.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--aiven-jars", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-tiered-") as folder:
        with TieredKafka(Path(folder), aiven_jars=arguments.aiven_jars) as broker:
            fill(broker)
            expected = {topic: answers(broker, topic) for topic in TOPICS}
        shutil.rmtree(arguments.out, ignore_errors=True)
        kept = shutil.ignore_patterns(".lock", "__cluster_metadata-*", "__consumer_offsets-*", "__transaction_state-*")
        shutil.copytree(broker.data, arguments.out / "data", ignore=kept)
        shutil.copytree(broker.remote, arguments.out / "remote")
        for checkpoint in (arguments.out / "data").glob("*-checkpoint"):
            _leave_out(checkpoint, ("__consumer_offsets", "__transaction_state"))
    (arguments.out / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main()
