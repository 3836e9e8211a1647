"""Tiered topics in the commands that look after a folder: `verify`, `retention`, and the broker's start."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import run, run_ok
from tests.reader.golden import GOLDEN
from tidelog.broker.serving_broker import log_loaded
from tidelog.clock import ManualClock
from tidelog.errors import NotFoundError
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.metadata.batches import build_batch
from tidelog.metadata.frame import encode_record
from tidelog.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from tidelog.model import REMOTE_LOG_METADATA_TOPIC
from tidelog.reader.tiered.tiered_log_dir import open_log_dir
from tidelog.storage.log_manager import LogManager
from tidelog.wire.fields import Message

TOPIC_RESOURCE = 2
SETTINGS = {"remote.storage.enable": "true", "local.retention.bytes": "3000", "retention.ms": "-1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the golden folder, with the metadata of its topics."""
    shutil.copytree(GOLDEN / "tiered" / "local", tmp_path / "golden")
    data = tmp_path / "golden" / "data"
    records: list[Message] = []
    for topic, count in (("orders", 1), ("short", 1), ("plain", 1), (REMOTE_LOG_METADATA_TOPIC, 3)):
        topic_id = read_topic_id(data / f"{topic}-0" / "partition.metadata")
        assert topic_id is not None
        records.append(TopicRecord(topic, topic_id))
        records += [PartitionRecord(number, topic_id, [1], [1], [], [], 1, 1, 0) for number in range(count)]
        if topic in ("orders", "short"):
            records += [ConfigRecord(TOPIC_RESOURCE, topic, name, value) for name, value in SETTINGS.items()]
    (data / "__cluster_metadata-0").mkdir()
    values = [encode_record(record, 0) for record in records]
    (data / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(build_batch(values, 0, 1, 5))
    return tmp_path / "golden"


def test_verify_compares_the_metadata_with_the_files(folder: Path) -> None:
    arguments = ("verify", folder / "data", "short", "orders", "--tier", folder / "remote", "--json")
    assert run(*arguments).exit_code == 0
    logs = sorted((folder / "remote").rglob("*.log"))
    logs[0].write_bytes(logs[0].read_bytes()[:-1])
    logs[1].with_suffix(".timeindex").unlink()
    logs[2].unlink()
    ran = run(*arguments)
    assert ran.exit_code == 3
    faults = [row for row in map(json.loads, ran.stdout.splitlines()) if row["type"] == "fault"]
    size = logs[0].stat().st_size
    assert [(row["path"], row["found"], row["expected"]) for row in faults if row["found"]] == [
        (str(logs[0]), f"{size}", f"{size + 1}")
    ]
    assert {(row["path"], row["what"].partition(": the ")[2]) for row in faults if not row["found"]} == {
        (str(logs[1]), ".timeindex file is missing in remote storage"),
        (str(logs[2]), ".log file is missing in remote storage"),
    }


def test_retention_knows_local_limits(folder: Path) -> None:
    ran = run_ok("retention", folder / "data", "short", "--tier", folder / "remote")
    assert "tiered, local as all (Kafka's default), 2.9 KiB (the topic's, in the metadata log)" in ran.stdout
    assert ran.stdout.splitlines()[1].endswith("leaves the folder")
    rows = [
        json.loads(line)
        for line in run_ok("retention", folder / "data", "short", "--tier", folder / "remote", "--json").stdout.splitlines()
    ]
    assert [(row["base_offset"], row["is_local"], row["leaves_folder_ms"]) for row in rows] == [
        (130, False, None),
        (195, True, None),
    ]
    assert rows[0]["settings"]["local.retention.bytes"] == {"value": 3000, "source": "metadata_topic"}
    plain = json.loads(
        run_ok("retention", folder / "data", "plain", "--tier", folder / "remote", "--json").stdout.splitlines()[0]
    )
    assert "is_local" not in plain and "local.retention.ms" not in plain["settings"]


def test_the_broker_says_that_it_serves_only_a_part(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = LogManager(folder / "data", ManualClock(0))
    manager.startup()
    try:
        with caplog.at_level(logging.WARNING, "tidelog"):
            log_loaded(manager, 0.0)
    finally:
        manager.shutdown()
    said = [text for text in caplog.messages if "is tiered (remote.storage.enable)" in text]
    assert [text.partition(" ")[0] for text in said] == ["orders-0", "short-0"]
    assert "from offset 227 on" in said[0] and "from offset 195 on" in said[1]


def test_a_partition_of_the_metadata_topic_that_is_not_there(folder: Path) -> None:
    """A broker has only some of them: the topic must not look shorter than it is."""
    for number in range(3):
        if (folder / "data" / f"{REMOTE_LOG_METADATA_TOPIC}-{number}" / f"{0:020d}.log").stat().st_size:
            shutil.rmtree(folder / "data" / f"{REMOTE_LOG_METADATA_TOPIC}-{number}")
    log_dir = open_log_dir(f"tiered:{folder / 'data'}?tier={folder / 'remote'}")
    with pytest.raises(NotFoundError, match=r"__remote_log_metadata-[02] lists the remote segments of orders-0"):
        log_dir.log("orders", 0)
    assert log_dir.log("plain", 0).log_end_offset == 60
