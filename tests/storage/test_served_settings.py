"""What a folder was served with is noted in it, and found by those that ask later."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.cli.test_serve import serving
from tidelog.clock import ManualClock
from tidelog.errors import CorruptCheckpointError
from tidelog.metadata.records import BROKER_RESOURCE, BrokerEndpoint, RegisterBrokerRecord
from tidelog.storage.folder.served_settings import SERVED_FILE, read_served_settings
from tidelog.storage.log_manager import LogManager
from tidelog.storage.metadata.topic_records import config_records
from tidelog.storage.topics.topic_settings import Source, TopicSettings

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SECRETS = {"sasl.jaas.config": "secret", "ssl.keystore.password": "secret"}


def serve(folder: Path, **properties: Any) -> None:
    """Serve the folder for a moment."""
    with tidelog.Broker(folder, clock=ManualClock(NOW_MS), **properties) as broker:
        if "t" not in broker_topics(folder):
            broker.create_topic("t")
            broker.produce("t", [b"v"], timestamp_ms=NOW_MS)


def broker_topics(folder: Path) -> list[str]:
    return [path.name.rpartition("-")[0] for path in folder.glob("*-0")] if folder.exists() else []


def test_the_folder_knows_what_it_was_served_with(tmp_path: Path) -> None:
    serve(tmp_path, **{"log.retention.hours": 24, "log.retention.bytes": 5000, "log.cleanup.policy": "delete"})
    served = read_served_settings(tmp_path)
    assert served is not None
    assert served == (NOW_MS, None, {"retention.ms": str(DAY_MS), "retention.bytes": "5000", "cleanup.policy": "delete"})
    known = TopicSettings(tmp_path).of("t")
    assert (known.config.retention_ms, known.config.retention_bytes, known.is_broker_known) == (DAY_MS, 5000, True)
    assert known.source("retention.ms") is Source.SERVED
    assert known.source("segment.bytes") is Source.DEFAULT
    (line,) = run_ok("retention", tmp_path, "t", clock=ManualClock(NOW_MS)).lines[:1]
    words = "(the broker's, when the folder was last served 2023-11-14T22:13:20.000Z)"
    assert line.startswith(f"t-0: retention 1d {words}, 4.9 KiB {words}; high watermark")
    (row,) = run_ok("retention", tmp_path, "--json", clock=ManualClock(NOW_MS)).json_lines
    assert row["settings"]["retention.ms"] == {"value": DAY_MS, "source": "served"}


def test_a_later_start_with_the_same_settings_is_noted_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the time changes, so the start does not wait for the disk."""
    with LogManager(tmp_path, ManualClock(NOW_MS)) as manager:
        manager.settings.note_served(tmp_path, NOW_MS)
        assert read_served_settings(tmp_path) == (NOW_MS, None, {})
        synced = []
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", synced.append)
            manager.settings.note_served(tmp_path, NOW_MS + 1)
            assert synced == []
        manager.tick()
        assert read_served_settings(tmp_path) == (NOW_MS + 1, None, {})


def test_a_configuration_that_is_given_takes_its_place(tmp_path: Path) -> None:
    """All of it: also a file that says nothing of a setting."""
    serve(tmp_path, **{"log.retention.ms": 5000, "log.retention.bytes": 7})
    known = TopicSettings(tmp_path, {"log.retention.ms": "9000"}).of("t")
    assert (known.config.retention_ms, known.source("retention.ms")) == (9000, Source.FILE)
    assert (known.config.retention_bytes, known.source("retention.bytes")) == (-1, Source.DEFAULT)
    assert TopicSettings(tmp_path, {}).of("t").config.retention_ms == 7 * DAY_MS
    (tmp_path / SERVED_FILE).write_text("{")
    assert TopicSettings(tmp_path, {}).of("t").is_broker_known


def test_what_a_topic_says_and_the_metadata_log_wins(tmp_path: Path) -> None:
    serve(tmp_path, **{"log.retention.ms": 5000, "log.retention.bytes": 7})
    with LogManager(tmp_path, ManualClock(NOW_MS)) as manager:
        manager.alter_config("t", {"retention.ms": "1"})
        store = manager.metadata
        store.commit(config_records(BROKER_RESOURCE, "", {}, {"log.retention.bytes": "8"}))
    known = TopicSettings(tmp_path).of("t")
    assert (known.config.retention_ms, known.source("retention.ms")) == (1, Source.METADATA_TOPIC)
    assert (known.config.retention_bytes, known.source("retention.bytes")) == (8, Source.METADATA_BROKER)


def test_only_serving_is_noted(tmp_path: Path) -> None:
    """A folder that is recovered, read, or looked at read-only is served by nobody."""
    serve(tmp_path, **{"log.retention.ms": 5000})
    before = (tmp_path / SERVED_FILE).read_bytes()
    with LogManager(tmp_path, ManualClock(NOW_MS + 1)):
        pass
    with tidelog.Broker(tmp_path, clock=ManualClock(NOW_MS + 1), read_only=True):
        pass
    assert (tmp_path / SERVED_FILE).read_bytes() == before
    serve(tmp_path)
    assert json.loads((tmp_path / SERVED_FILE).read_bytes())["properties"] == {}
    assert TopicSettings(tmp_path).of("t").is_broker_known


def test_settings_that_keep_less_than_before_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    serve(tmp_path, **{"log.retention.ms": -1})
    with caplog.at_level(logging.WARNING):
        serve(tmp_path)
    assert "retention.ms is 604800000 now, and was -1 when the folder was last served" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        serve(tmp_path, **{"log.retention.ms": -1})
    assert caplog.text == ""


def test_a_kafka_that_served_it_since_is_told(tmp_path: Path) -> None:
    serve(tmp_path, **{"log.retention.ms": 5000})
    assert not TopicSettings(tmp_path).is_kafkas_since
    with LogManager(tmp_path, ManualClock(NOW_MS)) as manager:
        store = manager.metadata
        store.commit([RegisterBrokerRecord(store.node_id, broker_epoch=12, end_points=[BrokerEndpoint("X", "h", 1, 0)])])
    settings = TopicSettings(tmp_path)
    assert settings.is_kafkas_since
    assert not settings.of("t").is_broker_known
    ran = run_ok("retention", tmp_path, clock=ManualClock(NOW_MS))
    assert "Kafka has served the folder since Tidelog last did, at 2023-11-14T22:13:20.000Z" in ran.stderr
    serve(tmp_path)
    assert not TopicSettings(tmp_path).is_kafkas_since


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"version": 2}', '{"version": 1}', '{"version": 1, "time_ms": "x", "properties": {}}'),
        '{"version": 1, "time_ms": 1, "broker_epoch": "x", "properties": {}}',
        '{"version": 1, "time_ms": 1, "broker_epoch": null, "properties": {"retention.ms": "soon"}}',
        '{"version": 1, "time_ms": 1, "broker_epoch": null, "properties": {"no.such": "1"}}',
    ],
)
def test_a_damaged_note_is_one_clear_error_and_stops_no_broker(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    serve(tmp_path, **{"log.retention.ms": 5000})
    path = tmp_path / SERVED_FILE
    path.write_text(content)
    with pytest.raises(CorruptCheckpointError, match="the settings that the folder was served with") as info:
        read_served_settings(tmp_path)
    assert info.value.path == str(path)
    ran = run("retention", tmp_path, clock=ManualClock(NOW_MS))
    assert ran.exit_code == 1
    assert "tidelog-served.json" in ran.stderr
    ran = run("verify", tmp_path)
    assert ran.exit_code == 3
    assert any(line.startswith("fault:") and "tidelog-served.json" in line for line in ran.lines)
    serve(tmp_path, **{"log.retention.ms": 5000})
    assert "the settings that the folder was served with" in caplog.text
    assert read_served_settings(tmp_path) is not None


def test_no_secret_is_noted(tmp_path: Path) -> None:
    """Nothing but defaults of topics, whatever a configuration file holds."""
    config = tmp_path / "server.properties"
    lines = {"log.retention.ms": "5000", "node.id": "1", "advertised.listeners": "PLAINTEXT://h:1", **SECRETS}
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    with serving(tmp_path / "data", "--config", config, "--listen", "0"):
        pass
    content = json.loads((tmp_path / "data" / SERVED_FILE).read_bytes())
    assert content["properties"] == {"retention.ms": "5000"}
    assert set(content) == {"version", "time_ms", "broker_epoch", "properties"}
