"""`tidelog sql QUERY`: results in each format, notes and exit codes, errors in one line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.cli.conftest import KAFKA_3, run, run_ok
from tests.queries.logs import write_topics
from tests.sources.logs import LogBuilder
from tidelog.cli.app import cli

NOON = 1_373_457_600_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("sql")
    builder = LogBuilder(data_dir)
    builder.append([(NOON, b"a", b"x"), (NOON + 61_500, None, b"\xff\x1b"), (2**63 - 1, b"c", b"long ago")])
    builder.append([(-1, b"d", b"none")], magic=0)
    builder.close()
    return data_dir


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the command runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


ALL = "select offset, timestamp, key, value, [1.5, 2] l, {'n': offset} s, count(*) over () c from orders order by offset"


def test_text(folder: Path) -> None:
    ran = run_ok(
        "sql", folder, "select offset, timestamp, key, value, age(timestamp, '2013-07-09') as age from orders where offset < 2"
    )
    assert ran.lines[0].split() == ["offset", "timestamp", "key", "value", "age"]
    assert ran.lines[1].endswith("1 day 12:00:00")
    assert "2013-07-10T12:01:01.500Z  -    \\xFF\\x1B" in ran.lines[2]
    ran = run_ok("sql", folder, "select offset, timestamp from orders where offset > 1")
    assert [line.split()[1] for line in ran.lines[1:]] == ["infinity", "-"]
    query = "select max(timestamp) from orders where timestamp < moment('2013-07-10 15:00')"
    local = run_ok("sql", folder, "--tz", "Europe/Berlin", query)
    assert local.lines[1] == "2013-07-10T14:01:01.500+02:00"


def test_a_query_imports_no_pandas(folder: Path) -> None:
    program = (
        "import sys; from tidelog.cli.app import cli\n"
        "cli(['sql', sys.argv[1], 'select offset from orders'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'pandas'])\n"
        "import pyarrow; print(len(pyarrow.table({'a': [1, 2]}).to_pandas()))"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-2:] == ["[]", "2"]


def test_json_and_csv(folder: Path) -> None:
    found = run_ok("sql", folder, "--json", ALL).json_lines
    assert found[0] == {
        "offset": 0,
        "timestamp": "2013-07-10T12:00:00.000Z",
        "key": "a",
        "value": "x",
        "l": [1.5, 2],
        "s": {"n": 0},
        "c": 4,
    }
    assert [one["key"] for one in found] == ["a", None, "c", "d"]
    cells = list(csv.reader(io.StringIO(run_ok("sql", folder, "--format", "csv", ALL).stdout)))
    assert cells[0] == ["offset", "timestamp", "key", "value", "l", "s", "c"]
    assert cells[2][2:4] == ["", "\\xFF\\x1B"] and cells[3][1] == "infinity" and len(cells) == 5


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_files(suffix: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out.{suffix}"
    ran = run_ok("sql", folder, "create view v as from orders; from v", "--output", out)
    assert ran.stdout == "" and ran.stderr.endswith(f"{out}: 4 rows\n")
    if suffix == "parquet":
        assert pq.read_table(out)["offset"].to_pylist() == [0, 1, 2, 3]
    elif suffix == "arrow":
        assert pa.ipc.open_file(out).read_all()["key"].to_pylist() == ["a", None, "c", "d"]
    else:
        assert len(out.read_text().splitlines()) == (5 if suffix == "csv" else 4)
    if suffix != "arrow":
        assert run_ok("sql", folder, f"select count(*) n from '{out}'", "--json").stdout == '{"n":4}\n'


def test_a_file_that_is_not_complete_does_not_appear(folder: Path, tmp_path: Path) -> None:
    ran = run("sql", folder, "select error('no') from orders", "-o", tmp_path / "out.csv")
    assert ran.exit_code == 1 and ran.error.endswith("no") and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select count(*) from two-partitions", '; in SQL, the topic two-partitions needs double quotes: "two-partitions"'),
        ('select frm from "two-partitions"', None),
        ("select 'two-partitions' from", None),
        ("compacted", None),
    ],
)
def test_a_topic_that_needs_quotes(query: str, hint: str | None) -> None:
    error = run("sql", KAFKA_3, query).error
    assert ("double quotes" not in error) if hint is None else error.rstrip().endswith(hint)


def test_standard_input(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["sql", str(folder), "--json"], input="select 1 a; -- x\nselect count(*) b from orders")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"a": 1}, {"b": 4}]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["select * from order_"], 1, "tidelog: no topic or table order_ (did you mean orders?)"),
        (["select frm"], 1, 'tidelog: Binder Error: Referenced column "frm"'),
        (["select 1 +"], 1, "tidelog: Parser Error: syntax error at"),
        (
            ["copy orders to 'x.csv'"],
            1,
            "tidelog: COPY is refused, because queries are read-only: to write a result to a file, use tidelog sql --output FILE",
        ),
        ([""], 2, "tidelog: the query is empty."),
        (["select 1; select 2", "-o", "x.csv"], 2, "tidelog: --output accepts one result"),
        (
            ["create view x as select 1", "-o", "x.csv"],
            2,
            "tidelog: --output needs a result, but the last statement returns none.",
        ),
        (["select 1", "--json", "--format", "csv"], 2, "tidelog: --json and csv cannot be combined."),
        (["select 1", "--decode", "jsn"], 2, "tidelog: --decode: unknown format: jsn"),
        (["select 1", "--tz", "Europe/Berln"], 2, "tidelog: "),
    ],
)
def test_errors(arguments: list[str], code: int, text: str, folder: Path, empty_folder: Path) -> None:
    ran = run("sql", folder, *arguments)
    assert (ran.exit_code, ran.stdout) == (code, ""), ran.stderr
    assert ran.error.startswith(text)
    assert list(empty_folder.iterdir()) == []


def test_a_query_without_a_source() -> None:
    ran = run("sql", "select count(*) from orders")
    assert ran.exit_code == 2 and "give a folder or brokers before the query" in ran.error


def test_missing_records_are_noted_and_end_with_3(tmp_path: Path) -> None:
    write_topics(tmp_path, 1)
    segment = sorted(tmp_path.glob("orders-1/*.log"))[1]
    for file in tmp_path.glob(f"orders-1/{segment.stem}.*"):
        file.unlink()
    ran = run("sql", tmp_path, "select count(*) > 0 as n from orders", "--json")
    assert (ran.exit_code, ran.stdout) == (3, '{"n":true}\n')
    assert len([note for note in ran.notes if "orders-1: offsets [" in note]) == 1
    assert run("sql", tmp_path, "select key from orders limit 1").exit_code == 3
    explained = run("sql", tmp_path, "explain select key from orders")
    assert explained.exit_code == 3 and any("orders-1: offsets [" in note for note in explained.notes)
    assert run("sql", tmp_path, "select key from orders where partition = 0").exit_code == 0


def test_explain_is_the_plan_and_what_is_read(folder: Path) -> None:
    lines = run_ok("sql", folder, "explain select count(*) from orders where timestamp >= moment('2013-07-10 12:01')").lines
    assert "reads orders: topic" in lines and "  timestamps: [2013-07-10T12:01:00.000Z, ...)" in lines
