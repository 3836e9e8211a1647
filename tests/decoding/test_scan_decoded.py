"""`tidelog.scan(decode=…)`: typed columns, and the bytes that could not be decoded beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tidelog.decoding import Decodings
from tidelog.errors import InvalidArgumentError

VALUES = [b'{"id":1,"to":"IAH"}', None, b"{broken", b'{"id":2,"to":null,"late":true}']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = LogBuilder(tmp_path, segment_bytes=600)
    for value in VALUES:
        builder.append([(1_373_446_800_000, b"UA", value)])
    builder.append([(1_373_446_800_000, b"\xff", b'{"id":3}')])
    builder.close()
    return Path(builder.data_dir)


def read(folder: Path, **arguments: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tidelog.scan(folder, TOPIC, **arguments).read_all().to_pylist()
    return found


def test_values_are_typed_and_nothing_is_lost(folder: Path) -> None:
    report = tidelog.ScanReport()
    reader = tidelog.scan(folder, TOPIC, columns=["value", "key"], decode={"value": "json", "key": "utf8"}, report=report)
    kind = pa.struct([("id", pa.int64()), ("to", pa.string()), ("late", pa.bool_())])
    assert reader.schema.field("value").type == kind
    rows = reader.read_all().to_pylist()
    assert [row["key"] for row in rows] == ["UA", "UA", "UA", "UA", None]
    assert [row["key_undecoded"] for row in rows] == [None, None, None, None, b"\xff"]
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, None, None, 2, 3]
    assert [row["value_undecoded"] for row in rows] == [None, None, b"{broken", None, None]
    assert report.undecoded == 2


def test_what_was_not_decoded_is_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidelog"):
        read(folder, columns=["value"], decode="json")
    assert f"{TOPIC}: 1 value is not json: shown as bytes" in caplog.text


def test_an_empty_range_has_a_schema(folder: Path) -> None:
    assert read(folder, columns=["value"], end=0, decode=Decodings.parse(["json"])) == []


def test_another_topics_format_does_not_apply(folder: Path) -> None:
    assert set(read(folder, columns=["value"], decode="other=json")[0]) == {"value"}


@pytest.mark.parametrize("decode", ["jsn", {"values": "json"}, "=json"])
def test_what_is_refused(folder: Path, decode: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        read(folder, decode=decode)


@pytest.mark.parametrize("prefix", ["", f"{TOPIC}=", f"{TOPIC}.value=", "*="])
def test_the_path_of_a_schema_may_contain_the_sign(folder: Path, tmp_path: Path, prefix: str) -> None:
    schema = tmp_path / "day=1" / "a=b.json"
    schema.parent.mkdir()
    schema.write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    decode = Decodings.parse(["json"], schemas=[f"{prefix}{schema}"])
    kind = tidelog.scan(folder, TOPIC, columns=["value"], decode=decode).schema.field("value").type
    assert kind == pa.struct([("id", pa.int64())])


@pytest.mark.parametrize("name", ["a=b.json", "day=1/orders.json", f"{TOPIC}=b.json"])
def test_the_whole_path_of_a_file_names_no_topic(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    schema = tmp_path / name
    schema.parent.mkdir(exist_ok=True)
    schema.write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    monkeypatch.chdir(tmp_path)
    decode = Decodings.parse(["json"], schemas=[name])
    kind = tidelog.scan(folder, TOPIC, columns=["value"], decode=decode).schema.field("value").type
    assert kind == pa.struct([("id", pa.int64())])


def test_names_that_apply_to_no_topic() -> None:
    decode = Decodings.parse(["json", "order=json", "pay*=avro", "b.value=utf8"], schemas=["nothing=a.avsc"])
    assert decode.unused(["orders", "payments", "b"]) == ["order", "nothing"]
