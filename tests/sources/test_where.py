"""`tidelog.scan(where=…)`: only the records for which an SQL expression is true, and a notice about those for which it fails."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tidelog.errors import InvalidArgumentError

pytest.importorskip("duckdb")

VALUES = [b'{"id":1}', None, b"{broken", b'{"id":2}', b'{"id":3}']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = LogBuilder(tmp_path, segment_bytes=600)
    for number, value in enumerate(VALUES):
        builder.append([(1_373_446_800_000 + number, b"k%d" % number, value)])
    builder.close()
    return Path(builder.data_dir)


def offsets(folder: Path, where: str, **arguments: Any) -> list[int]:
    found: list[int] = tidelog.scan(folder, TOPIC, where=where, **arguments).read_all().column("offset").to_pylist()
    return found


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("key = 'k3'", [3]),
        ("offset between 1 and 2", [1, 2]),
        ("timestamp >= '2013-07-10 09:00:00.003Z'", [3, 4]),
        ("value is null", [1]),
        ("(value->>'$.id')::int > 1", [3, 4]),
    ],
)
def test_expressions(folder: Path, where: str, expected: list[int]) -> None:
    assert offsets(folder, where) == expected
    assert offsets(folder, where, columns=["offset"], batch_rows=1) == expected


@pytest.mark.parametrize("views", [False, True])
def test_the_columns_are_those_without_an_expression(folder: Path, views: bool) -> None:
    for names in (None, ["value", "offset"]):
        plain = tidelog.scan(folder, TOPIC, columns=names, views=views)
        some = tidelog.scan(folder, TOPIC, columns=names, views=views, where="offset <> 2")
        assert some.schema == plain.schema
        table = plain.read_all()
        assert some.read_all().to_pylist() == [row for row in table.to_pylist() if row["offset"] != 2]


def test_typed_values(folder: Path) -> None:
    report = tidelog.ScanReport()
    reader = tidelog.scan(
        folder, TOPIC, columns=["value"], decode="json", where="value.id <> 2 or value_bytes = '{broken'::blob", report=report
    )
    assert reader.schema.names == ["value", "value_undecoded"]
    assert [row["value"] or row["value_undecoded"] for row in reader.read_all().to_pylist()] == [{"id": 1}, b"{broken", {"id": 3}]
    assert (report.records, report.undecoded) == (3, 1)


def test_records_for_which_it_fails_are_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidelog"):
        assert offsets(folder, "(value->>'$.id')::int > 0") == [0, 3, 4]
        assert offsets(folder, "timestamp > 'yesterdy'") == []
        assert offsets(folder, "key like 'k%' and (value || chr(27) || repeat('x', 1000))::int > 0") == []
    assert "1 record was left out because where cannot be evaluated: Invalid Input Error" in caplog.text
    assert "4 records were left out" in caplog.text, "null is no error"
    assert "\x1b" not in caplog.text
    assert max(map(len, caplog.messages)) < 400
    assert "5 records were left out because where cannot be evaluated: Conversion Error" in caplog.text


@pytest.mark.parametrize("where", ["", " ", 3, "valu = 1", "1 +", "true); drop table x; --"])
def test_what_is_refused_before_anything_is_read(folder: Path, where: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^where: "):
        tidelog.scan(folder, TOPIC, where=where)
