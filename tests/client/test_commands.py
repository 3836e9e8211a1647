"""`tidelog find`, `cat` and `stat` of host:port: what they say of the folder, but for what a broker does not tell."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import KAFKA_3, run, run_ok

TOPIC = "two-partitions"


@pytest.fixture
def address(golden: dict[str, str]) -> str:
    return golden["kafka-3.9.1"]


@pytest.mark.parametrize("at", ["2020-09-20T12:27:30", "0", "9999-12-31", "earliest", "latest", "max"])
@pytest.mark.parametrize("more", [[], ["--json"], ["--partition", "1", "--isolation", "read_committed"]])
def test_find_says_the_same(address: str, at: str, more: list[str]) -> None:
    assert run_ok("find", address, TOPIC, "--at", at, *more).stdout == run_ok("find", KAFKA_3, TOPIC, "--at", at, *more).stdout


@pytest.mark.parametrize("more", [["--explain"], ["--message-format", "v1"]])
def test_find_refuses_what_is_for_folders(address: str, more: list[str]) -> None:
    ran = run("find", address, TOPIC, "--at", "now", *more)
    assert ran.exit_code == 2
    assert "need a folder, not brokers" in ran.error


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--from", "2020-09-20T12:27:30", "--to", "2020-09-20T12:27:45"],
        ["--format", "jsonl", "-p", "1"],
        ["--to", "1970-01-02"],
    ],
)
def test_cat_says_the_same(address: str, more: list[str]) -> None:
    from_broker, from_folder = run_ok("cat", address, TOPIC, *more), run_ok("cat", KAFKA_3, TOPIC, *more)
    assert from_broker.stdout == from_folder.stdout
    assert from_broker.stderr == from_folder.stderr


def test_cat_transactions(address: str) -> None:
    committed = run_ok("cat", address, "transactions", "--isolation", "read_committed").lines
    assert committed == run_ok("cat", KAFKA_3, "transactions", "--isolation", "read_committed").lines
    assert len(committed) < len(run_ok("cat", address, "transactions").lines)


def test_cat_into_files(address: str, tmp_path: Path) -> None:
    ran = run_ok("cat", address, TOPIC, "-o", tmp_path / "all.parquet")
    assert "500 records" in ran.stderr
    assert pq.read_table(tmp_path / "all.parquet").num_rows == 500
    stream = run_ok("cat", address, TOPIC, "--format", "arrow").stdout_bytes
    assert pa.ipc.open_stream(io.BytesIO(stream)).read_all().num_rows == 500


@pytest.mark.parametrize("more", [["--time-map-dir", "maps"], ["--until-high-watermark"]])
def test_cat_refuses_what_is_for_folders(address: str, more: list[str]) -> None:
    ran = run("cat", address, TOPIC, *more)
    assert ran.exit_code == 2
    assert "are for folders" in ran.error


def test_stat(address: str) -> None:
    zero, one = run_ok("stat", address, TOPIC, "--json").json_lines
    folder = {
        line["partition"]: line for line in run_ok("stat", KAFKA_3, TOPIC, "--json").json_lines if line["type"] == "partition"
    }
    for line in (zero, one):
        wanted = folder[line["partition"]]
        shared = ("type", "topic", "log_start_offset", "high_watermark", "bytes", "largest_timestamp")
        assert [line[name] for name in shared] == [wanted[name] for name in shared]
        assert line["last_stable_offset"] == wanted["log_end_offset"]
    assert zero["replicas"] == zero["in_sync"] == [zero["leader"]]
    lines = run_ok("stat", address, TOPIC, "-p", "1").lines
    assert lines[0].split("  ")[0] == "topic"
    assert len(lines) == 2
    assert lines[1].split()[:5] == [TOPIC, "1", str(one["leader"]), "1/1", "0"]


def test_stat_of_all_topics(address: str) -> None:
    told = {(line["topic"], line["partition"]): line for line in run_ok("stat", address, "--json").json_lines}
    folder = {
        (line["topic"], line["partition"]): line
        for line in run_ok("stat", KAFKA_3, "--quick", "--json").json_lines
        if line["type"] == "partition"
    }
    assert told.keys() == folder.keys()
    for key, line in told.items():
        assert line["log_start_offset"] == folder[key]["log_start_offset"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["cat", "127.0.0.1:1", "t"], "Connection refused (127.0.0.1:1)"),
        (["find", "127.0.0.1:1", "t", "--at", "now"], "Connection refused (127.0.0.1:1)"),
        (["stat", "127.0.0.1:0"], "the port is out of range"),
        (["stat", "SSL://127.0.0.1:1"], "found SSL://127.0.0.1:1, expected security.protocol=PLAINTEXT"),
    ],
)
def test_no_broker_is_one_line(args: list[str], said: str) -> None:
    ran = run(*args)
    assert ran.exit_code == (1 if "refused" in said else 2)
    assert said in ran.error


def test_no_such_topic(address: str) -> None:
    for args in (["cat", address, "nowhere"], ["find", address, "nowhere", "--at", "now"], ["stat", address, "nowhere"]):
        ran = run(*args)
        assert ran.exit_code == 1
        assert "no topic 'nowhere'" in ran.error
