"""Replays between Apache Kafka 3.9.1, Tidelog and folders, killed with -9 at random: rows and map are exact.

Random topics: out of order, all codecs, transactions that commit and abort. What a window holds is reported by a plain filter
over what was produced; what the target holds, by librdkafka's consumer, read_committed.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

import tidelog
from tests.interop.gate import first_of
from tests.interop.spark_program import is_starved
from tests.kafka.brokers import Kafka391
from tests.kafka.clients import create_topics, flush, wait_until_decided
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.copying.offset_map import OffsetMap

NOON = 1_700_000_000_000
LOW, HIGH = NOON + 20_000, NOON + 80_000
PARTITIONS = 2
RECORDS = 12_000
KILLS = 4
CHUNK_BYTES = 50_000


class Produced(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def fill(bootstrap: str, topic: str, seed: int) -> dict[int, list[Produced]]:
    """Produce, and return what is committed in each partition, in order."""
    chance = random.Random(seed)
    committed: dict[int, list[Produced]] = {number: [] for number in range(PARTITIONS)}
    for turn, codec in enumerate(("none", "lz4", "zstd", "gzip", "snappy", "none")):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"fill-{topic}-{turn}",
                "compression.type": codec,
                "linger.ms": 20,
                "batch.num.messages": chance.choice([10, 300, 1000]),
            }
        )
        producer.init_transactions(PATIENCE_S)
        for _ in range(4):
            producer.begin_transaction()
            is_committed = chance.random() < 0.75
            for _ in range(RECORDS // 24):
                partition = chance.randrange(PARTITIONS)
                row = Produced(
                    NOON + chance.randrange(100_000),
                    chance.choice([None, b"k%d" % chance.randrange(1000)]),
                    chance.choice([None, chance.randbytes(20) * chance.randrange(1, 20)]),
                    ((("h", None), ("x", b"1")) if chance.random() < 0.1 else ()),
                )
                producer.produce(topic, row.value, row.key, partition, timestamp=row.timestamp, headers=list(row.headers))
                if is_committed:
                    committed[partition].append(row)
                producer.poll(0)
            flush(producer)
            producer.commit_transaction(PATIENCE_S) if is_committed else producer.abort_transaction(PATIENCE_S)
    return committed


def consume(bootstrap: str, topic: str) -> dict[int, dict[int, Produced]]:
    """Offset → record of each partition, as a consumer is given them."""
    wait_until_decided(bootstrap, topic, PARTITIONS)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"reader-{topic}",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    found: dict[int, dict[int, Produced]] = {number: {} for number in range(PARTITIONS)}
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        at_end: set[int] = set()
        while len(at_end) < PARTITIONS:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise TimeoutError(f"{topic}: nothing for {PATIENCE_S} s; only {sorted(at_end)} are at their ends")
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                at_end.add(message.partition())
                continue
            headers = tuple(message.headers() or ())
            row = Produced(message.timestamp()[1], message.key(), message.value(), headers)
            found[message.partition()][message.offset()] = row
    finally:
        consumer.close()
    return found


def offsets_in_source(bootstrap: str, topic: str) -> dict[int, list[tuple[int, Produced]]]:
    return {number: list(rows.items()) for number, rows in consume(bootstrap, topic).items()}


@pytest.fixture(scope="module")
def tidelog_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    # What is produced is years old. A replay's own topics keep their records by themselves.
    options: dict[str, Any] = {"num_partitions": PARTITIONS, "log_retention_ms": -1}
    with tidelog.Broker(data_dir=tmp_path_factory.mktemp("tidelog") / "data", **options) as running:
        yield running


def replay_under_fire(arguments: list[str], kills: int, seed: int) -> int:
    """Run a replay again and again, kill it at a random line; return how often it was killed before it got done.

    It is given that many steps and two more, as it would get done while this process stands still.
    """
    chance = random.Random(seed)
    for attempt in range(kills + 1):
        command = [sys.executable, "-m", "tests.interop.replay_program", *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            left = chance.randrange(1, 25) if attempt < kills else None
            if left is None:
                process.stdin.close()
            else:
                process.stdin.write("\n" * (left + 2))
                process.stdin.flush()
            lines = []
            for line in process.stdout:
                lines.append(line.strip())
                if left is not None and len(lines) >= left:
                    os.kill(process.pid, signal.SIGKILL)
                    break
            # It may have got done before the kill came.
            lines += process.stdout.read().split("\n")[:-1]
            errors = process.stderr.read()
        if process.returncode == 0:
            assert lines[-1] == "done"
            return attempt
        assert process.returncode == -signal.SIGKILL, errors
    raise AssertionError("never done")


@pytest.mark.parametrize(
    "way",
    first_of("kafka to tidelog", "folder to kafka", "tidelog to kafka", why="the same steps with other places"),
)
def test_a_killed_replay_is_exact(way: str, broker: Kafka391, tidelog_broker: tidelog.Broker, tmp_path: Path) -> None:
    name = way.replace(" ", "-")
    places = {"kafka": broker.bootstrap, "tidelog": tidelog_broker.bootstrap_servers, "folder": broker.bootstrap}
    source_name, target_name = way.split(" to ")
    bootstrap, target = places[source_name], places[target_name]
    source_topic, target_topic = f"{name}-in", f"{name}-out"
    create_topics(bootstrap, {source_topic: {}}, PARTITIONS)
    produced = fill(bootstrap, source_topic, seed=len(way))
    stored = offsets_in_source(bootstrap, source_topic)
    assert {number: [row for _, row in rows] for number, rows in stored.items()} == produced
    source = str(broker.data) if source_name == "folder" else bootstrap
    if source_name == "folder":
        _wait_for_high_watermark(broker, source_topic)
    arguments = [source, source_topic, target, target_topic, str(LOW), str(HIGH), str(tmp_path / "map"), str(CHUNK_BYTES)]
    killed = replay_under_fire(arguments, KILLS, seed=7)
    assert killed >= 2

    found = consume(target, target_topic)
    offsets = OffsetMap.open(tmp_path / "map")
    for number, rows in stored.items():
        wanted = [(offset, row) for offset, row in rows if LOW <= row.timestamp < HIGH]
        assert list(found[number].values()) == [row for _, row in wanted]
        for offset, row in wanted:
            place = offsets.target_of(source_topic, number, offset)
            assert place.is_exact
            assert found[number][place.offset] == row


def _wait_for_high_watermark(broker: Kafka391, topic: str) -> None:
    """Wait until Kafka has written down what every replica has: a folder is read no further."""
    with tidelog.connect(broker.bootstrap) as client:
        ends = client.latest_offsets([(topic, number) for number in range(PARTITIONS)])

    def written() -> bool:
        lines = (broker.data / "replication-offset-checkpoint").read_text().split("\n")[2:]
        known = {tuple(line.split()[:2]): int(line.split()[2]) for line in lines if line}
        return all(known.get((topic, str(number)), 0) >= end for (_, number), end in ends.items())

    wait_until(written, "the high watermark to be written down", PATIENCE_S)


@pytest.mark.thorough("replays that are killed: the test above; drivers that are killed: test_stream_kills, test_pipeline_kills")
def test_a_job_whose_driver_is_killed_goes_on(broker: Kafka391, tidelog_broker: tidelog.Broker, tmp_path: Path) -> None:
    """With Spark: the driver dies when the first chunk is in; its workers may live on for a while, and are fenced."""
    chance = random.Random(1)
    create_topics(broker.bootstrap, {"job-in": {}}, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "enable.idempotence": True})
    rows: dict[int, list[Produced]] = {number: [] for number in range(PARTITIONS)}
    for i in range(50_000):
        row = Produced(NOON + chance.randrange(100_000), None, b"%d" % i + chance.randbytes(900), ())
        producer.produce("job-in", row.value, partition=i % PARTITIONS, timestamp=row.timestamp)
        rows[i % PARTITIONS].append(row)
        producer.poll(0)
    flush(producer)
    maps = tmp_path / "map"
    command = [sys.executable, "-m", "tidelog", "job", "replay", broker.bootstrap, "job-in"]
    command += ["--target", tidelog_broker.bootstrap_servers, "--target-topic", "job-out", "--map", str(maps)]
    command += ["--from", str(NOON), "--to", str(HIGH), "--json"]

    def has_begun() -> bool:
        is_over = killed.poll() is not None
        has_chunk = sum(path.stat().st_size for path in maps.glob("*.offsetmap")) > 600
        if is_over and not has_chunk:
            raise RuntimeError(f"the job has ended with {killed.poll()} before it copied anything")
        return has_chunk

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        wait_until(has_begun, "the first chunk", 2 * PATIENCE_S)
        killed.kill()
    done = subprocess.run([*command, "--rows", str(tmp_path / "map.csv")], capture_output=True, text=True, timeout=2 * PATIENCE_S)
    if done.returncode and is_starved(done.stderr):
        raise TimeoutError(done.stderr)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {number: [row for row in each if row.timestamp < HIGH] for number, each in rows.items()}
    assert [line["records"] for line in lines] == [len(wanted[number]) for number in range(PARTITIONS)]
    assert sum(line["copied_now"] for line in lines) < sum(line["records"] for line in lines)
    found = consume(tidelog_broker.bootstrap_servers, "job-out")
    assert {number: list(each.values()) for number, each in found.items()} == wanted

    # The rows are the map.
    with (tmp_path / "map.csv").open() as file:
        for run in csv.DictReader(file):
            number, first, target = (int(run[name]) for name in ("partition", "first_offset", "target_offset"))
            for i in (0, int(run["records"]) - 1):
                assert found[number][target + i] == rows[number][first + i]
