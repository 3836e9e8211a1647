"""What commands say of a folder that lacks something: the answer, a note on stderr, a field for scripts, exit code 3."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import KAFKA_3, run, run_ok
from tidelog.clock import ManualClock
from tidelog.errors import OffsetOutOfRangeError
from tidelog.spark.options import parse_options
from tidelog.spark.tasks import plan_tasks

TOPIC = "v2-none-ct"
GONE = "note: v2-none-ct-0: offsets [160, 325) missing: no segment holds them; the batch before is from "


@pytest.fixture
def gapped(tmp_path: Path) -> Path:
    """A folder whose second segment is gone, and one partition of another topic."""
    folder = shutil.copytree(KAFKA_3, tmp_path / "log")
    for path in (folder / f"{TOPIC}-0").glob("00000000000000000160.*"):
        path.unlink()
    shutil.rmtree(folder / "two-partitions-1")
    return folder


@pytest.mark.parametrize("arguments", [(), ("--isolation", "read_committed"), ("--from", "2020-09-20T12:28:00")])
def test_cat(arguments: tuple[str, ...], gapped: Path) -> None:
    ran = run("cat", gapped, TOPIC, *arguments)
    assert ran.exit_code == 3
    assert [note[: len(GONE)] for note in ran.notes] == [GONE]
    assert ran.lines  # What is there is given.


def test_cat_into_a_file(gapped: Path, tmp_path: Path) -> None:
    ran = run("cat", gapped, TOPIC, "-o", tmp_path / "out.jsonl")
    assert ran.exit_code == 3
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 735


def test_cat_of_a_topic_that_lacks_a_partition(gapped: Path) -> None:
    ran = run("cat", gapped, "two-partitions")
    assert (ran.exit_code, len(ran.lines)) == (3, 200)
    assert "two-partitions-1: offsets [0, 300) the partition is missing" in ran.notes[0]
    assert run("cat", gapped, "two-partitions", "-p", 0).exit_code == 0  # It was not asked for.
    assert "it is missing" in run("cat", gapped, "two-partitions", "-p", 1).error


@pytest.mark.parametrize(
    ("at", "exit_code"),
    [("earliest", 0), ("latest", 0), ("max", 3), ("2020-09-20T12:26:50", 0), ("2020-09-20T12:30", 3), ("now", 3)],
)
def test_find_says_what_could_change_its_answer(at: str, exit_code: int, gapped: Path) -> None:
    ran = run("find", gapped, TOPIC, "--at", at, "--json")
    assert ran.exit_code == exit_code
    (line,) = ran.json_lines
    assert [(one["first_offset"], one["end_offset"]) for one in line.get("missing", ())] == [(160, 325)] * (exit_code == 3)


def test_stat(gapped: Path) -> None:
    ran = run("stat", gapped, TOPIC, "--json")
    assert (ran.exit_code, ran.json_lines[0]["missing"][0]["first_offset"]) == (3, 160)
    everything = run("stat", gapped, "--json")
    assert [line["topic"] for line in everything.json_lines if line["type"] == "missing_partition"] == ["two-partitions"]
    assert run("stat", gapped, "v2-lz4-ct").exit_code == 0


def test_a_cut_end(gapped: Path) -> None:
    for path in (gapped / f"{TOPIC}-0").glob("00000000000000000799.*"):
        path.unlink()
    ran = run("find", gapped, TOPIC, "--at", "latest")
    assert ran.exit_code == 3
    assert "offsets [799, 900) missing: recovery-point-offset-checkpoint says" in ran.stderr


def test_scan(gapped: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = tidelog.ScanReport()
    assert tidelog.scan(gapped, TOPIC, report=report).read_all().num_rows == 735
    assert not report.is_complete
    assert [(one.first_offset, one.end_offset) for one in report.missing] == [(160, 325)]
    assert any("[160, 325) missing" in record.getMessage() for record in caplog.records)
    report = tidelog.ScanReport()
    tidelog.scan(gapped, TOPIC, offsets={0: (325, None)}, report=report).read_all()
    assert report.is_complete


@pytest.mark.parametrize("subscription", [{"subscribe": TOPIC}, {"subscribe": "two-partitions"}, {"subscribePattern": "two-.*"}])
def test_spark_refuses_unless_losses_are_fine(
    subscription: dict[str, str], gapped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"path": str(gapped), **subscription}
    with pytest.raises(OffsetOutOfRangeError, match=r"records are missing from the folder: .* missing.*failOnDataLoss=false"):
        plan_tasks(parse_options(given, ManualClock(0)), 2)
    assert plan_tasks(parse_options({**given, "failOnDataLoss": "false"}, ManualClock(0)), 2)
    assert any("records are missing from the folder" in record.getMessage() for record in caplog.records)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A folder with a flipped bit in a batch of one topic."""
    folder = shutil.copytree(KAFKA_3, tmp_path / "damaged")
    path = folder / f"{TOPIC}-0" / "00000000000000000160.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    return folder


def test_cat_around_damage(damaged: Path, tmp_path: Path) -> None:
    without = run("cat", damaged, TOPIC, "-o", tmp_path / "none.jsonl")
    assert without.exit_code == 1 and "00000000000000000160.log" in without.error
    assert not (tmp_path / "none.jsonl").exists()
    ran = run("cat", damaged, TOPIC, "--skip-damaged", "--format", "jsonl")
    assert ran.exit_code == 3
    (note,) = ran.notes
    report = tidelog.ScanReport()
    scanned = tidelog.scan(damaged, TOPIC, skip_damaged=True, report=report).read_all()
    (left_out,) = report.left_out
    assert note == f"note: {left_out}" and left_out.first_offset == 160 and "00000000000000000160.log" in note
    whole = [line["offset"] for line in run_ok("cat", KAFKA_3, TOPIC, "--format", "jsonl").json_lines]
    given = [line["offset"] for line in ran.json_lines]
    assert given == scanned["offset"].to_pylist()
    assert given == [offset for offset in whole if not left_out.first_offset <= offset < left_out.end_offset] != whole


def test_cat_around_no_damage(damaged: Path) -> None:
    ran = run_ok("cat", damaged, "v2-lz4-ct", "--skip-damaged")
    assert ran.stdout == run_ok("cat", KAFKA_3, "v2-lz4-ct").stdout and not ran.notes
    refused = run("cat", "localhost:1", TOPIC, "--skip-damaged")
    assert refused.exit_code == 2 and "--skip-damaged reads segment files" in refused.error
