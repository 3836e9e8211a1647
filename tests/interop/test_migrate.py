"""A folder of Kafka 2.4.1 in formats v0, v1 and v2, migrated by Tidelog, under Kafka 3.9.1."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.check.test_migration import SOURCE, golden_topics, migrate
from tests.interop.engine_rounds import put_under
from tests.kafka import Kafka391, dump_log_segments
from tests.kafka.clients import NewRow, consume, consume_all, list_offsets, produce
from tests.kafka.tools import complaints
from tidelog.formats import names

SUFFIXES = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX)
KEEPS_TIMES = re.compile(r"v[12]-|migrated-")
"""Topics whose segments all have timestamps, or none before those that have: by those without Kafka takes a file's time."""


def test_kafka_serves_a_migrated_folder(tmp_path: Path) -> None:
    topics = golden_topics()
    migrate(SOURCE, tmp_path / "new")
    files = [path for path in sorted((tmp_path / "new").glob("[!_]*-0/*")) if path.suffix in SUFFIXES]
    assert complaints(dump_log_segments(files, "--deep-iteration", timeout_s=300)) == []
    with Kafka391(tmp_path / "kafka") as broker:
        broker.create_topics({topic: {"segment.bytes": "16384"} for topic in topics})
        broker.stop()
        put_under(broker, tmp_path / "new", topics)
        broker.start()
        served = consume_all(broker.bootstrap, topics)
        for topic, (expected,) in topics.items():
            rows = [(row.offset, row.timestamp, _text(row.key), _text(row.value)) for row in served[topic]]
            assert rows == [(offset, timestamp, key, value) for offset, timestamp, _, key, value, _ in expected["records"]]
            # v0 has no type; what has one keeps it.
            kinds = [(row.timestamp_type, kind) for row, (_, _, kind, *_) in zip(served[topic], expected["records"], strict=True)]
            assert all(new == old for new, old in kinds if old)
        asked = {topic: expected["list_offsets"] for topic, (expected,) in topics.items() if KEEPS_TIMES.match(topic)}
        for turn in range(max(map(len, asked.values()))):
            due = {topic: targets[turn] for topic, targets in asked.items() if turn < len(targets)}
            answers = list_offsets(broker.admin, {topic: OffsetSpec.for_timestamp(due[topic][0]) for topic in due})
            assert answers == {topic: tuple(answer) for topic, (_, *answer) in due.items()}
        produce(broker.bootstrap, "v0-none-ct", [NewRow(b"k", b"new", 1_800_000_000_000)])
        assert consume(broker.bootstrap, "v0-none-ct")[-1].value == b"new"
        assert not list(broker.data.glob("*-stray"))


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
