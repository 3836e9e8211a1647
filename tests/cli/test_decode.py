"""`tidelog cat --decode`: texts in the text formats, typed columns in Parquet and Arrow, and what could not be decoded."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import run, run_ok
from tests.sources.logs import LogBuilder

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": ["null", "string"]}],
}


def avro(order: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, order)
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data_dir = tmp_path / "data"
    for topic, values in (
        ("orders", [b'{"id": 1,\n "to": "\\u001b[31m"}', None, b"\xff{", b'{"id":2}']),
        ("avros", [avro({"id": 7, "to": "IAH"}), b"", avro({"id": 8, "to": None})]),
    ):
        builder = LogBuilder(data_dir, topic=topic)
        builder.append([(1_373_446_800_000 + row, b"\0\1" if row else b"UA", value) for row, value in enumerate(values)])
        builder.close()
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    return data_dir


def test_json_lines(folder: Path) -> None:
    ran = run_ok("cat", folder, "orders", "--decode", "json", "--key-decode", "hex", "--format", "jsonl")
    rows = [json.loads(line) for line in ran.lines]
    assert [row["value"] for row in rows] == [{"id": 1, "to": "\x1b[31m"}, None, None, {"id": 2}]
    assert [row["key"] for row in rows] == ["5541", "0001", "0001", "0001"]
    assert [row.get("value_undecoded") for row in rows] == [None, None, "/3s=", None]
    assert "note: orders: 1 value is not json: shown as bytes" in ran.stderr


def test_lines_csv_and_formats(folder: Path) -> None:
    decode = ("--decode", "orders=json", "--decode", "avros=avro", "--schema", f"avros={folder.parent / 'order.avsc'}")
    text = run_ok("cat", folder, "orders", "avros", *decode).stdout
    assert '{"id":7,"to":"IAH"}' in text and '{"id":1,"to":"' in text and "\x1b" not in text and "\\xff{" in text
    by_time = run_ok("cat", folder, "orders", "avros", *decode, "--sort", "time", "-f", r"%t %s\n").lines
    assert sorted(by_time) == sorted(run_ok("cat", folder, "orders", "avros", *decode, "-f", r"%t %s\n").lines)
    assert 'avros {"id":8,"to":null}' in by_time
    csv = run_ok("cat", folder, "avros", *decode, "--format", "csv", "--encoding", "base64").stdout
    assert '"{""id"":7,""to"":""IAH""}"' in csv


def test_parquet_has_types(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "orders.parquet"
    schema = folder.parent / "order.avsc"
    ran = run_ok("cat", folder, "avros", "--decode", "avro", "--schema", schema, "--output", out)
    rows = pq.read_table(out).to_pylist()
    assert [row["value"] for row in rows] == [{"id": 7, "to": "IAH"}, None, {"id": 8, "to": None}]
    assert [row["value_undecoded"] for row in rows] == [None, b"", None]
    assert "1 value is not avro" in ran.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--decode", "jsn"], "unknown format: jsn (did you mean json?)"),
        (["--decode", "avro"], "avro needs a schema registry or a schema file"),
        (["--decode", "avro", "--schema", "none.avsc"], "cannot read the schema: No such file"),
        (["--decode", "utf8", "--schema", "order.avsc", "avros"], None),
        (["--schema", "order.avsc"], "need --decode"),
        (["--decode", "avro", "--registry", "ftp://x"], "expected http://… or https://…"),
        (
            ["--decode", "avro", "--registry", "http://me:s3cret@127.0.0.1:1", "-o", "x.parquet"],
            "the schema registry cannot be reached",
        ),
        (["avros", "--decode", "json", "--format", "arrow", "--output", "x.arrow"], "can hold only one topic"),
    ],
)
def test_what_is_refused(folder: Path, options: list[str], words: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    ran = run("cat", folder, "orders", *options)
    assert (ran.exit_code != 0) == (words is not None), ran.stderr
    assert words is None or words in ran.stderr
    assert "s3cret" not in ran.stderr


@pytest.mark.parametrize(("name", "near"), [("order", " (did you mean orders?)"), ("xyz*", "")])
def test_a_format_for_no_topic_that_is_read(folder: Path, name: str, near: str) -> None:
    error = run_ok("cat", folder, "orders", "--decode", f"{name}=json", "-n", "1").stderr
    assert f"names '{name}', which is none of the topics to be read{near}" in error
    assert "none of the topics" not in run_ok("cat", folder, "orders", "--decode", "orders=json", "-n", "1").stderr


AVRO_AND_JSON = ("orders", "avros", "--decode", "orders=json", "--decode", "avros=avro", "--key-decode", "hex")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--where", "value.id > 1"), ["orders 3", "avros 0", "avros 2"]),
        (("--where", "value.id % 7 = 0 and key = '5541' and value.to = 'IAH'"), ["avros 0"]),
        (("--where", "value->>'$.to' = 'IAH' and hex(value_bytes) like '0E%'"), ["avros 0"]),
        (("--where", "value_undecoded is not null"), ["orders 2", "avros 1"]),
        (
            ("--where", "value.to is null and key_bytes = '\\x00\\x01'::BLOB"),
            ["orders 1", "orders 2", "orders 3", "avros 1", "avros 2"],
        ),
        (("--key", "0001", "--grep", '"id":[28]'), ["orders 3", "avros 2"]),
        (("--key", "UA"), []),
        (("--grep", "IAH"), ["avros 0"]),
        (("--grep", "5541"), ["orders 0", "avros 0"]),
        (("--grep", r"\xff"), ["orders 2"]),
        (("--where", "value.id > 1", "--grep", "null"), ["avros 2"]),
    ],
)
def test_filters_see_what_was_decoded(folder: Path, options: tuple[str, ...], found: list[str]) -> None:
    schema = ("--schema", f"avros={folder.parent / 'order.avsc'}")
    ran = run_ok("cat", folder, *AVRO_AND_JSON, *schema, *options, "-f", r"%t %o\n")
    assert ran.lines == found
    sees_all = "--where" not in options or "--grep" in options
    assert ("note: orders: 1 key or value cannot be decoded; --where sees null instead" in ran.stderr) != sees_all


def test_filters_do_not_decode_what_they_return(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "orders.parquet"
    run_ok("cat", folder, "orders", "--decode", "json", "--where", "value.id = 2", "--output", out)
    assert [row["value"] for row in pq.read_table(out).to_pylist()] == [{"id": 2}]
    assert run_ok("cat", folder, "orders", "--decode", "json", "--where", "value.id = 2", "--count").stdout.split()[-1] == "1"


@pytest.mark.parametrize("where", ["value.ids > 1", "value.id >", "valu = 1"])
def test_an_expression_that_does_not_fit_the_types_is_refused(folder: Path, where: str) -> None:
    ran = run("cat", folder, "orders", "--decode", "json", "--where", where)
    assert ran.exit_code != 0 and "tidelog: --where: " in ran.stderr and not ran.stdout


def test_sql_has_the_same_options(folder: Path) -> None:
    schema = folder.parent / "order.avsc"
    decode = ("--decode", "avros=avro", "--schema", f"avros={schema}", "--key-decode", "avros=hex")
    query = "select key, value.id as id, value.to as to_ from avros order by offset"
    rows = [json.loads(line) for line in run_ok("sql", folder, query, "--json", *decode).lines]
    assert [(row["key"], row["id"], row["to_"]) for row in rows] == [("5541", 7, "IAH"), ("0001", None, None), ("0001", 8, None)]
    registry = ("--decode", "avros=avro", "--schema", f"avros={schema}", "--registry", "http://127.0.0.1:9/not-asked")
    assert run_ok("sql", folder, "select count(*) as n from orders", "--json", *registry).stdout == '{"n":4}\n'
    assert run("sql", folder, "select 1", "--schema", f"{schema}").exit_code == 2


def test_sql_over_several_folders(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    builder = LogBuilder(other, topic="payments")
    builder.append([(1_373_446_800_000, b"UA", b"1.5")])
    builder.close()
    query = "select (select count(*) from orders) as orders, (select count(*) from payments) as payments"
    assert run_ok("sql", f"{folder}:{other}", query, "--json").stdout == '{"orders":4,"payments":1}\n'
    listed = run_ok("sql", f"{folder}:{other}", "select count(distinct topic) as n from tidelog.segments", "--json")
    assert listed.stdout == '{"n":3}\n'
