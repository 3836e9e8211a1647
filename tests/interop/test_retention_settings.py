"""`tidelog retention` of a folder that Apache Kafka 3.9.1 left, its metadata log in it: the settings are those that Kafka had."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from tests.cli.conftest import run_ok
from tests.kafka import Kafka391
from tests.kafka.clients import NewRow, produce
from tests.patience import PATIENCE_S

HOUR_MS = 3_600_000
TOPICS = {
    "day": {"retention.ms": "86400000"},
    "small": {"retention.bytes": "100"},
    "compacted": {"cleanup.policy": "compact"},
    "plain": {},
}


def test_settings_are_kafkas(tmp_path: Path) -> None:
    kafka = Kafka391(tmp_path, {"log.retention.ms": "1209600000"})
    kafka.properties["metadata.log.dir"] = str(kafka.data)
    now_ms = int(time.time() * 1000)
    with kafka:
        kafka.create_topics(TOPICS)
        for topic in TOPICS:
            produce(kafka.bootstrap, topic, [NewRow(b"k", b"v", now_ms - HOUR_MS)])
        change = ConfigEntry("log.retention.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
        broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
        kafka.admin.incremental_alter_configs([broker])[broker].result(PATIENCE_S)
        kafka.alter_topic("compacted", {"retention.ms": "5"})
    rows = {row["topic"]: row for row in run_ok("retention", kafka.data, "--json").json_lines}
    told = {
        topic: [(rows[topic]["settings"][name]["value"], rows[topic]["settings"][name]["source"]) for name in settings]
        for topic, settings in {
            "day": ("retention.ms", "retention.bytes"),
            "small": ("retention.bytes", "retention.ms"),
            "compacted": ("cleanup.policy", "retention.ms"),
            "plain": ("cleanup.policy", "retention.ms", "retention.bytes"),
        }.items()
    }
    week = (7 * 24 * HOUR_MS, "default")
    assert told == {
        "day": [(24 * HOUR_MS, "metadata_topic"), (5000, "metadata_broker")],
        "small": [(100, "metadata_topic"), week],
        "compacted": [("compact", "metadata_topic"), (5, "metadata_topic")],
        "plain": [("delete", "default"), week, (5000, "metadata_broker")],
    }
    assert rows["day"]["goes_ms"] == now_ms + 23 * HOUR_MS + 1
    assert rows["compacted"]["goes_ms"] is None
    config = tmp_path / "server.properties"
    rows = {row["topic"]: row for row in run_ok("retention", kafka.data, "--json", "--config", config).json_lines}
    assert rows["plain"]["settings"]["retention.ms"] == {"value": 14 * 24 * HOUR_MS, "source": "file"}
    assert rows["day"]["settings"]["retention.ms"]["source"] == "metadata_topic"
    assert "is not in the folder's metadata" not in run_ok("retention", kafka.data).stderr
