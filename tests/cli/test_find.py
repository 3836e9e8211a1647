"""`tidelog find`: the brokers' own answers, the walk told, and careless use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import KAFKA_2, KAFKA_3, run, run_ok, run_process, start
from tidelog.clock import ManualClock

Expected = Callable[[str, str], list[dict[str, Any]]]

T0 = 1_600_604_800_000

KEYS = ["topic", "partition", "target", "offset", "timestamp", "leader_epoch"]


@pytest.mark.parametrize("topic", ["v2-lz4-ct", "two-partitions", "transactions", "deleted-prefix", "empty", "v2-zstd-lat"])
def test_answers_are_the_brokers(topic: str, expected: Expected) -> None:
    partitions = expected("kafka-3.9.1", topic)
    targets = sorted({target for partition in partitions for target, *_ in partition["list_offsets"]})
    for target in targets[:: max(1, len(targets) // 12)]:
        rows = run_ok("find", KAFKA_3, topic, "--at", target, "--json").json_lines
        assert [list(row) for row in rows] == [KEYS] * len(partitions)
        assert [row["partition"] for row in rows] == [partition["partition"] for partition in partitions]
        for row, partition in zip(rows, partitions, strict=True):
            answers = {answer[0]: answer[1:] for answer in partition["list_offsets"]}
            assert (row["topic"], row["target"]) == (topic, target)
            if target in answers:
                assert [row["offset"], row["timestamp"]] == answers[target]


@pytest.mark.parametrize("topic", ["v2-lz4-ct", "two-partitions", "future-pinned", "compacted", "empty"])
def test_special_targets(topic: str, expected: Expected) -> None:
    for partition in expected("kafka-3.9.1", topic):
        number = partition["partition"]
        for word, target, answer in (
            ("earliest", -2, [partition["log_start"], -1]),
            ("latest", -1, [partition["high_watermark"], -1]),
            ("max", -3, partition["max_timestamp"]),
        ):
            ran = run_ok("find", KAFKA_3, topic, "--at", word, "--partition", number, "--json")
            (row,) = ran.json_lines
            assert [row["target"], row["offset"], row["timestamp"]] == [target, *answer]
            assert ran.stderr == ""


def test_a_table_for_people() -> None:
    ran = run_ok("find", KAFKA_3, "two-partitions", "--at", "2020-09-20T12:26:50")
    assert ran.stderr == "2020-09-20T12:26:50 = 1600604810000 ms, 2020-09-20T12:26:50.000Z\n"
    header, *rows = ran.lines
    assert header == "topic           partition  offset  timestamp                 leader epoch"
    assert [row.split()[:2] for row in rows] == [["two-partitions", "0"], ["two-partitions", "1"]]
    assert all(row.split()[3].startswith("2020-09-20T12:2") for row in rows)
    ran = run_ok("find", KAFKA_3, "empty", "--at", "0")
    assert ran.lines[1].split() == ["empty", "0", "-", "-", "-"]


def test_relative_times_use_the_clock() -> None:
    clock = ManualClock(T0 + 3 * 86_400_000)
    (row,) = run_ok("find", KAFKA_3, "v2-lz4-ct", "--at", "-3d", "--json", clock=clock).json_lines
    assert row["target"] == T0
    (row,) = run_ok("find", KAFKA_3, "v2-lz4-ct", "--at=-3d", "--json", clock=clock).json_lines
    assert row["target"] == T0


def test_the_walk_is_told() -> None:
    ran = run_ok("find", KAFKA_3, "v2-lz4-ct", "--at", "2020-09-20T12:28:30", "--explain")
    walk = [line for line in ran.lines if not line.startswith(("topic", "v2-lz4-ct  "))]
    text = "\n".join(walk)
    assert walk[0] == "v2-lz4-ct-0: the first record at or after 2020-09-20T12:28:30.000Z, in offsets 0 to 1500"
    assert "  segment 0: largest timestamp 2020-09-20T12:27:44.241Z by its last time index entry: too early, skipped" in walk
    for part in (
        "time index (",
        "offset index (",
        "walked ",
        "record: offset ",
        "Apache Kafka answers the same",
        "answer: offset ",
    ):
        assert part in text
    assert walk[-1].endswith(" read")
    # Each segment comes before what was done in it.
    order = [line.split(":")[0].split("(")[0].strip() for line in walk]
    late_enough = next(n for n, line in enumerate(walk) if line.endswith("late enough"))
    assert order[late_enough + 1 : late_enough + 3] == ["time index", "offset index"]
    found = run_ok("find", KAFKA_3, "v2-lz4-ct", "--at", "2020-09-20T12:28:30", "--json").json_lines[0]
    assert f"record: offset {found['offset']} at" in text


def test_the_walk_goes_to_stderr_where_stdout_is_for_scripts() -> None:
    plain = run_ok("find", KAFKA_3, "two-partitions", "--at", T0, "--json")
    told = run_ok("find", KAFKA_3, "two-partitions", "--at", T0, "--json", "--explain")
    assert told.stdout == plain.stdout
    assert "two-partitions-1: the first record at or after" in told.stderr


def test_where_kafka_says_none_the_walk_says_so(expected: Expected) -> None:
    (partition,) = expected("kafka-2.4.1", "migrated-v0-v1-v2")
    target = next(target for target, offset, *_ in partition["list_offsets"] if offset != -1)
    assert "Apache Kafka answers" in run_ok("find", KAFKA_2, "migrated-v0-v1-v2", "--at", target, "--explain").stdout


def test_formats_without_timestamps() -> None:
    ran = run("find", KAFKA_2, "v0-none-ct", "--at", T0, "--json")
    assert ran.exit_code == 1
    assert "message format v0 has no timestamps" in ran.error
    assert str(KAFKA_2 / "v0-none-ct-0") in ran.error
    for word in ("earliest", "latest"):
        run_ok("find", KAFKA_2, "v0-none-ct", "--at", word)
    (row,) = run_ok("find", KAFKA_2, "v0-none-ct", "--at", T0, "--message-format", "v1", "--json").json_lines
    assert row["offset"] == -1
    assert run("find", KAFKA_3, "v2-lz4-ct", "--at", T0, "--message-format", "v0").exit_code == 1


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    (uncommitted,) = run_ok("find", KAFKA_3, "transactions", "--at", "latest", "--json").json_lines
    (committed,) = run_ok("find", KAFKA_3, "transactions", "--at", "latest", "--isolation", "read_committed", "--json").json_lines
    assert committed["offset"] <= uncommitted["offset"] == 225


def copy(topic: str, tmp_path: Path, high_watermark: int | None = None) -> Path:
    shutil.copytree(KAFKA_3 / f"{topic}-0", tmp_path / "data" / f"{topic}-0")
    if high_watermark is not None:
        (tmp_path / "data" / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {high_watermark}\n")
    return tmp_path / "data"


def test_an_answer_past_the_high_watermark_is_noted(tmp_path: Path) -> None:
    data = copy("v2-lz4-ct", tmp_path, high_watermark=10)
    ran = run_ok("find", data, "v2-lz4-ct", "--at", "max", "--json")
    assert ran.json_lines[0]["offset"] > 10
    assert ran.notes == [f"note: v2-lz4-ct-0: offset {ran.json_lines[0]['offset']} is past the high-watermark checkpoint, 10"]
    assert run_ok("find", data, "v2-lz4-ct", "--at", 0).notes == []


def test_a_damaged_index_is_noted_and_the_answer_right(tmp_path: Path) -> None:
    data = copy("v2-lz4-ct", tmp_path)
    right = run_ok("find", data, "v2-lz4-ct", "--at", T0 + 60_000, "--json").stdout
    index = data / "v2-lz4-ct-0" / "00000000000000000000.timeindex"
    index.write_bytes(b"\x01" * 13)
    ran = run_ok("find", data, "v2-lz4-ct", "--at", T0 + 60_000, "--json")
    assert ran.stdout == right
    (note,) = ran.notes
    assert note.startswith(f"note: {index}: ")


def test_damage_is_one_line_with_path_and_position(tmp_path: Path) -> None:
    data = copy("v2-none-ct", tmp_path)
    for segment in sorted((data / "v2-none-ct-0").glob("*.log")):
        content = bytearray(segment.read_bytes())
        content[150] ^= 0xFF
        segment.write_bytes(content)
    for index in (data / "v2-none-ct-0").glob("*index"):
        index.unlink()
    ran = run("find", data, "v2-none-ct", "--at", T0 + 100_000)
    assert ran.exit_code == 1
    assert ".log at byte " in ran.error


def test_careless_use(tmp_path: Path) -> None:
    ran = run("find", tmp_path / "nowhere", "topic", "--at", 0)
    assert (ran.exit_code, ran.error) == (1, f"tidelog: no such folder ({tmp_path / 'nowhere'})")
    ran = run("find", tmp_path, "topic", "--at", 0)
    assert ran.error == f"tidelog: not a data folder: it holds no partition, it is empty ({tmp_path})"
    ran = run("find", KAFKA_3 / "v2-lz4-ct-0", "v2-lz4-ct", "--at", 0)
    assert ran.exit_code == 1
    assert "a partition's folder, and its parent is the data folder" in ran.error
    ran = run("find", KAFKA_3 / "meta.properties", "v2-lz4-ct", "--at", 0)
    assert (ran.exit_code, ran.stdout) == (1, "")
    ran = run("find", KAFKA_3, "v2-lz4", "--at", 0)
    assert (ran.exit_code, ran.error) == (1, f"tidelog: no topic 'v2-lz4' (did you mean v2-lz4-ct or v2-lz4-lat?) ({KAFKA_3})")
    ran = run("find", KAFKA_3, "two-partitions", "--at", 0, "--partition", 7)
    assert ran.exit_code == 1
    assert "topic 'two-partitions' has no partition 7, only 0, 1" in ran.error
    for at in ("-5", "monday", "2013-02-30", "9" * 40, ""):
        ran = run("find", KAFKA_3, "v2-lz4-ct", "--at", at)
        assert ran.exit_code == 2
        assert "not a time" in ran.error or "is before 1970" in ran.error or "is beyond" in ran.error
    assert run("find", KAFKA_3, "v2-lz4-ct").exit_code == 2


def test_a_process_of_its_own_needs_neither_arrow_nor_rich() -> None:
    ran = run_process("find", KAFKA_3, "v2-lz4-ct", "--at", T0, "--json", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert ran.exit_code == 0
    assert ran.json_lines[0]["offset"] == 0
    imported = {line.rsplit("|", 1)[1].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "tidelog.reader.time_search" in imported
    assert not imported & {"pyarrow", "pyspark", "numpy", "rich", "asyncio", "tidelog.cli.commands.cat"}


def test_nothing_is_written_to_the_folder(tmp_path: Path) -> None:
    data = copy("v2-lz4-ct", tmp_path)

    def state() -> list[tuple[str, int, int]]:
        return [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(data.rglob("*"))]

    before = state()
    run_ok("find", data, "v2-lz4-ct", "--at", T0, "--explain")
    assert state() == before


def test_a_closed_pipe_is_quiet() -> None:
    with start("find", KAFKA_3, "two-partitions", "--at", "latest") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    folder = tmp_path / "loop"
    os.symlink(folder, folder)  # noqa: PTH211
    ran = run("find", folder, "topic", "--at", 0)
    assert ran.exit_code == 1
    assert str(folder) in ran.error


def test_the_latest_offset_of_a_log_that_lacks_its_end(tmp_path: Path) -> None:
    """`latest` is where the files end, and a note says which records the checkpoint knows after it."""
    data = copy("v2-lz4-ct", tmp_path)
    (whole,) = run_ok("find", data, "v2-lz4-ct", "--at", "latest", "--json").json_lines
    end = whole["offset"]
    (data / "replication-offset-checkpoint").write_text(f"0\n1\nv2-lz4-ct 0 {end + 7}\n")
    ran = run("find", data, "v2-lz4-ct", "--at", "latest", "--json")
    assert ran.exit_code == 3
    (row,) = ran.json_lines
    assert row["offset"] == end
    assert [(one["first_offset"], one["end_offset"]) for one in row["missing"]] == [(end, end + 7)]
    assert f"offsets [{end}, {end + 7}) missing" in ran.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_at_or_after_a_time_is_said(more: tuple[str, ...]) -> None:
    ran = run_ok("find", KAFKA_3, "two-partitions", "--at", "2100-01-01", *more)
    hint = "to see the time range of each topic, run tidelog ls"
    assert ran.notes == [f"note: no record of two-partitions is at or after 2100-01-01T00:00:00.000Z; {hint}"]
    assert not run_ok("find", KAFKA_3, "two-partitions", "--at", "2020-01-01", *more).notes
