"""Internal topics as `tidelog.scan` and `dump` decode them. Kafka's tools judge it in tests/interop/test_internal_topics.py."""

from __future__ import annotations

import base64
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run_ok
from tests.reader.golden import GOLDEN
from tidelog.decoding import Decodings
from tidelog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.metadata.frame import encode_record
from tidelog.metadata.json_form import show_value
from tidelog.metadata.records import TopicRecord
from tidelog.model import METADATA_TOPIC, OFFSETS_TOPIC
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import encode_versioned

KEY = encode_versioned(OffsetCommitKey("readers", "flights", 2), 1)
VALUE = encode_versioned(OffsetCommitValue(348, -1, "", 9), 3)
NEWER = b"\0\x63" + VALUE[2:]
INTERNAL = {"key": "internal", "value": "internal"}
RECORDS = [(KEY, VALUE), (KEY, None), (KEY, NEWER), (b"\0\x63what", VALUE), (b"", b"")]


def write(folder: Path, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> Path:
    file = folder / f"{topic}-0" / "00000000000000000000.log"
    file.parent.mkdir()
    file.write_bytes(build_batch_v2([Record(offset, 5, CREATE_TIME, *one) for offset, one in enumerate(records)]))
    return file


def read(folder: Path, topic: str, **arguments: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tidelog.scan(folder, topic, **{"decode": INTERNAL, **arguments}).read_all().to_pylist()
    return found


def test_decoders_of_other_topics_leave_internal_topics_decoded(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS_TOPIC, RECORDS[:1])
    write(tmp_path, "orders", [(b"a", b'{ "n": 1 }')])
    found = run_ok("cat", tmp_path, OFFSETS_TOPIC, "orders", "--decode", "orders=json", "--json").json_lines
    assert [one["value"] for one in found] == [{"version": 3, "data": found[0]["value"]["data"]}, {"n": 1}]
    assert found[0]["key"]["data"]["group"] == "readers" and found[0]["value"]["data"]["offset"] == 348


def test_what_cannot_be_decoded_stays_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, OFFSETS_TOPIC, RECORDS)
    with caplog.at_level(logging.WARNING, "tidelog"):
        rows = read(tmp_path, OFFSETS_TOPIC)
    key = '{"type":1,"data":{"group":"readers","topic":"flights","partition":2}}'
    assert [row["key"] for row in rows] == [key, key, key, None, None]
    value = '{"version":3,"data":{"offset":348,"leaderEpoch":-1,"metadata":"","commitTimestamp":9}}'
    assert [row["value"] for row in rows] == [value, None, None, None, None]
    assert [row["key_undecoded"] for row in rows] == [None, None, None, b"\0\x63what", b""]
    assert [row["value_undecoded"] for row in rows] == [None, None, NEWER, VALUE, b""]
    assert "__consumer_offsets: 3 values are of an unknown version, or malformed: shown as bytes" in caplog.text


def test_values_alone_are_decoded_by_their_keys(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS_TOPIC, RECORDS)
    rows = read(tmp_path, OFFSETS_TOPIC, columns=["value"])
    assert set(rows[0]) == {"value", "value_undecoded"}
    assert [row["value"] for row in rows] == [row["value"] for row in read(tmp_path, OFFSETS_TOPIC)]


def test_more_records_than_are_decoded_at_once(tmp_path: Path) -> None:
    records = [
        (encode_versioned(OffsetCommitKey("readers", "flights", number), 1), encode_versioned(OffsetCommitValue(number), 3))
        for number in range(5000)
    ]
    write(tmp_path, OFFSETS_TOPIC, records)
    for number, row in enumerate(read(tmp_path, OFFSETS_TOPIC)):
        assert json.loads(row["key"])["data"]["partition"] == json.loads(row["value"])["data"]["offset"] == number


@pytest.mark.parametrize("release", ["kafka-3.9.1", "kafka-4.2.0"])
def test_the_metadata_log_is_read_by_its_name(release: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "metadata" / release / "stopped", tmp_path, dirs_exist_ok=True)
    write(tmp_path, "events", [(None, b"v")])
    assert list(LogDir(tmp_path).topics()) == ["events"]
    raw = tidelog.scan(tmp_path, METADATA_TOPIC).read_all().to_pylist()
    rows = read(tmp_path, METADATA_TOPIC)
    assert len(rows) > 90
    assert [json.loads(row["value"]) for row in rows] == [show_value(row["value"]) for row in raw]
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    with pytest.raises(UnknownTopicOrPartitionError):
        tidelog.scan(tmp_path, METADATA_TOPIC)


def test_newer_metadata_records_stay_bytes(tmp_path: Path) -> None:
    write(tmp_path, "events", [(None, b"v")])
    known = encode_record(TopicRecord("events"), 0)
    write(tmp_path, METADATA_TOPIC, [(None, known), (None, b"\1\x63\0"), (None, b"\1\2\x63"), (None, b"\7"), (None, None)])
    rows = read(tmp_path, METADATA_TOPIC)
    assert [row["value_undecoded"] for row in rows] == [None, b"\1\x63\0", b"\1\2\x63", b"\7", None]
    assert json.loads(rows[0]["value"])["type"] == "TOPIC_RECORD"


def test_which_topics_are_decoded() -> None:
    named = Decodings.parse(["json"], decodes_internal=True)
    assert {name: one.name for name, one in named.topic(OFFSETS_TOPIC).decoders.items()} == {"key": "internal", "value": "json"}
    unnamed = Decodings.parse(decodes_internal=True)
    for topic in (OFFSETS_TOPIC, METADATA_TOPIC):
        assert {name: one.name for name, one in unnamed.topic(topic).decoders.items()} == INTERNAL
    assert not unnamed.topic("events").decoders
    assert not Decodings.parse(["raw"], key_texts=["raw"], decodes_internal=True).topic(OFFSETS_TOPIC).decoders
    with pytest.raises(InvalidArgumentError, match="only for Kafka's internal topics: found events"):
        Decodings.parse(["internal"]).topic("events")


def test_dump(tmp_path: Path) -> None:
    file = write(tmp_path, OFFSETS_TOPIC, RECORDS)
    ran = run_ok("dump", file, "--records")
    assert ran.lines[-5].endswith('{"version":3,"data":{"offset":348,"leaderEpoch":-1,"metadata":"","commitTimestamp":9}}')
    assert "what" in ran.lines[-2]
    assert ran.notes == ["note: __consumer_offsets: 5 keys or values are of an unknown version, or malformed; shown as bytes"]
    rows = [row for row in run_ok("dump", file, "--records", "--json").json_lines if row["type"] == "record"]
    assert [None if row["decoded_value"] is None else row["decoded_value"]["data"]["offset"] for row in rows] == [
        348,
        None,
        None,
        None,
        None,
    ]
    assert [row["decoded_key"] is None for row in rows] == [False, False, False, True, True]
    moved = tmp_path / file.name
    file.rename(moved)
    assert "decoded_key" not in run_ok("dump", moved, "--records", "--json").stdout


def test_cat(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS_TOPIC, RECORDS)
    write(tmp_path, "events", [(None, b"v")])
    ran = run_ok("cat", tmp_path, OFFSETS_TOPIC, "--format", "jsonl")
    rows = ran.json_lines
    assert rows[0]["value"]["data"]["offset"] == 348
    assert rows[1]["key"]["data"]["group"] == "readers"
    assert any("3 values are of an unknown version, or malformed" in note for note in ran.notes)
    raw = run_ok("cat", tmp_path, OFFSETS_TOPIC, "--format", "jsonl", "--encoding", "base64").json_lines
    assert base64.b64decode(raw[0]["key"]) == KEY
    assert run_ok("cat", tmp_path, "events", "--format", "jsonl").json_lines[0]["value"] == "v"
