"""`tidelog ls`: topics and partitions, the same of a folder and of a broker that serves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import KAFKA_2, KAFKA_3, run, run_ok
from tidelog.cli.commands import ls
from tidelog.sources.opening import open_source


def test_topics_and_partitions_of_a_folder() -> None:
    topics = {one["topic"]: one for one in run_ok("ls", KAFKA_3, "--json").json_lines}
    records = run_ok("cat", KAFKA_3, "two-partitions", "--format", "jsonl").json_lines
    partitions = run_ok("ls", KAFKA_3, "two-partitions", "--json").json_lines
    for number, one in enumerate(partitions):
        own = [record for record in records if record["partition"] == number]
        assert (one["type"], one["topic"], one["partition"]) == ("partition", "two-partitions", number)
        assert one["log_end_offset"] - one["log_start_offset"] == len(own)
        assert one["first_timestamp"] == own[0]["timestamp"]
        assert one["largest_timestamp"] == max(record["timestamp"] for record in own)
        assert one["bytes"] == sum(file.stat().st_size for file in (KAFKA_3 / f"two-partitions-{number}").glob("*.log"))
    assert topics["two-partitions"] == {
        "type": "topic",
        "topic": "two-partitions",
        "partitions": 2,
        "offsets": len(records),
        "bytes": sum(one["bytes"] for one in partitions),
        "first_timestamp": min(one["first_timestamp"] for one in partitions),
        "largest_timestamp": max(one["largest_timestamp"] for one in partitions),
    }
    assert topics["empty"]["first_timestamp"] is None
    assert list(topics)[-2:] == ["__consumer_offsets", "__transaction_state"]


def test_topics_is_the_same_command() -> None:
    assert run_ok("topics", KAFKA_3).stdout == run_ok("ls", KAFKA_3).stdout
    assert "\n  topics" not in run_ok("--help").stdout


def test_topics_without_timestamps() -> None:
    topics = {one["topic"]: one for one in run_ok("ls", KAFKA_2, "--json").json_lines}
    assert topics["v0-none-ct"]["largest_timestamp"] is None
    assert topics["v1-none-ct"]["largest_timestamp"] is not None


def test_a_broker_says_the_same_as_its_folder(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path) as broker:
        for name in ("orders", "orders.returns", "other"):
            broker.create_topic(name, partitions=2)
        for n in range(5):
            broker.produce("orders", b"%d" % n, partition=n % 2)
        for wanted in ([], ["orders"], ["orders*", "other"]):
            shown = run_ok("ls", broker.bootstrap_servers, *wanted, "--json").json_lines
            assert shown == run_ok("ls", tmp_path, *wanted, "--json").json_lines
            assert len(shown) == {0: 3, 1: 2, 2: 6}[len(wanted)]


def test_an_unreadable_partition_does_not_hide_the_others(tmp_path: Path) -> None:
    for name in ("empty-0", "two-partitions-0", "two-partitions-1"):
        shutil.copytree(KAFKA_3 / name, tmp_path / name)
    (log,) = (tmp_path / "two-partitions-0").glob("*0000.log")
    log.write_bytes(b"\0\0\0\0\0\0\0\5" + b"\0\0\0\1" * 100)
    ran = run("ls", tmp_path, "two-partitions", "--json")
    assert ran.exit_code == 1
    assert "two-partitions-0" in ran.error
    assert [one["largest_timestamp"] is None for one in ran.json_lines] == [True, False]


def test_a_partition_that_is_gone_is_reported(tmp_path: Path) -> None:
    shutil.copytree(KAFKA_3, tmp_path / "log")
    shutil.rmtree(tmp_path / "log" / "two-partitions-1")
    ran = run("ls", tmp_path / "log")
    assert ran.exit_code == 3
    assert any("two-partitions-1" in note for note in ran.notes)
    assert run_ok("ls", tmp_path / "log", "empty").notes == []


def test_an_unknown_topic_is_an_error() -> None:
    assert "did you mean two-partitions" in run("ls", KAFKA_3, "two-partition").error


def test_one_request_asks_about_all_partitions() -> None:
    """Thousands of partitions are thousands of requests otherwise."""
    with open_source(KAFKA_3) as source:
        calls: list[int] = []
        find = source.find
        source.find = lambda targets, *rest: (calls.append(len(targets)), find(targets, *rest))[1]  # type: ignore[method-assign]
        keys = [ls.TopicPartition(name, number) for name, numbers in source.topics().items() for number in numbers]
        rows, failures = ls._partitions(source, keys)
    assert (calls, len(rows), failures) == ([len(keys)] * 2, len(keys), [])


@pytest.mark.parametrize("args", [["-p", 1], []])
def test_usage(args: list[object]) -> None:
    assert run("ls", *args).exit_code == 2
