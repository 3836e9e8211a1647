"""Make tests/golden/kafka-0.10.0.1: what the cleaner of Kafka 0.10.0.1 leaves in topics whose message format was changed.

    python -m tests.kafka.generate_mixed OUT

It compresses the messages that stay in a wrapper of the topic's new format, and leaves them in the old one (KAFKA-4298). Where
such a wrapper is the first of a segment, it fails on what it has written itself, and nothing gets to the disk: so each segment
begins with a batch of which all messages stay. OUT/log is the folder; OUT/expected.json what Kafka 3.9.1 reads of it.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.kafka.jars import classpath
from tests.kafka.java import run_java, wait_until
from tests.kafka.old_wire import produce_set
from tests.kafka.zookeeper_admin import ZookeeperAdmin
from tests.kafka.zookeepers import ZookeeperCluster
from tidelog.records.batch import CREATE_TIME
from tidelog.records.compression import Codec
from tidelog.records.legacy import build_message_set
from tidelog.records.records import Record

OLD = "kafka-0.10.0.1"
FORMATS = {"raised": ("0.9.0", "0.10.0"), "lowered": ("0.10.0", "0.9.0")}
CODECS = {"gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4}
FIRST_MS = 1_700_000_000_000
SEGMENT_BYTES = 1500
READER = Path(__file__).parent / "java_sources" / "MessageReader.java"


def settings(topic: str, turn: int) -> dict[str, str]:
    return {
        "cleanup_policy": "compact",
        "message_format_version": FORMATS[topic.partition("-")[0]][turn],
        "segment_bytes": str(SEGMENT_BYTES),
        "min_cleanable_dirty_ratio": "0.01",
        "compression_type": "producer",
    }


def sets(topic: str, rng: random.Random) -> list[bytes]:
    """Return what is produced: sets of one to eight messages, every third of which compaction leaves alone."""
    magic, codec = int(topic.startswith("lowered")), CODECS[topic.partition("-")[2]]
    found: list[bytes] = []
    sent = size = 0

    def made(count: int, *, stays: bool) -> bytes:
        records = [
            Record(
                i,
                FIRST_MS + sent * 1000 + i * 10 if magic else -1,
                CREATE_TIME,
                b"only %d" % (sent + i) if stays else b"key %d" % rng.randrange(7),
                b"value %d " % (sent + i) + b"x" * rng.randrange(60),
            )
            for i in range(count)
        ]
        return bytes(build_message_set(records, magic, codec=codec))

    for number in range(16):
        count = rng.choice([1, 2, 5, 8])
        data = made(count, stays=number % 3 == 0)
        if size + len(data) > SEGMENT_BYTES:
            data, size = made(count, stays=True), 0
        found.append(data)
        size += len(data)
        sent += count
    return found


def main(out: Path) -> None:
    topics = [f"{way}-{codec}" for way in FORMATS for codec in CODECS]
    rng = random.Random(10)
    properties = {"log.cleaner.backoff.ms": "200", "log.cleaner.enable": "false", "log.index.interval.bytes": "200"}
    properties |= {"log.index.size.max.bytes": "1200"}  # What a broker that has no time to close its logs leaves is as long.
    with (
        tempfile.TemporaryDirectory(prefix="mixed-") as folder,
        ZookeeperCluster(Path(folder), release=OLD, zookeeper=OLD, properties=properties) as cluster,
        cluster.client() as client,
    ):
        admin = ZookeeperAdmin(client)
        node = cluster.broker(1)
        for topic in topics:
            admin.create(topic, [[1]], **settings(topic, 0))
        for topic in topics:
            for data in sets(topic, rng):
                produce_set(lambda: node.port, topic, data, magic=int(topic.startswith("lowered")))
        node.stop()
        for topic in topics:
            admin.alter(topic, **settings(topic, 1))
        node.properties["log.cleaner.enable"] = "true"
        node.start()
        cleaned = node.data / "cleaner-offset-checkpoint"
        wait_until(lambda: cleaned.exists() and len(cleaned.read_text().splitlines()) == 2 + len(topics), "the cleaner")
        node.stop()
        shutil.copytree(node.data, out / "log", ignore=shutil.ignore_patterns("*.deleted", ".lock"))
    expected = {}
    for topic in topics:
        logs = sorted((out / "log" / f"{topic}-0").glob("*.log"))
        asked = out / "questions"
        asked.write_text("".join(f"{log}\t2\n" for log in logs))
        printed = run_java(classpath("3.9.1"), str(READER), [asked]).splitlines()
        asked.unlink()
        expected[topic] = [line for line in printed if line != "end"]
    (out / "expected.json").write_text(json.dumps(expected, indent=0) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
