"""A backup restored into a data folder: at random moments, equal to a plain model; after a kill; refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.examples import IS_SOAK
from tests.restore.logs import NOON, STEP_MS, TOPIC, History, history, of_model, plain
from tidelog.clock import ManualClock
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

MOMENTS = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> History:
    return history(tmp_path_factory.mktemp("made"), 1)


@pytest.mark.parametrize("seed", range(8 if IS_SOAK else 4))
def test_random_moments(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    made = history(tmp_path, seed)
    for number in range(MOMENTS):
        until_ms = NOON + random.randrange(made.points[-1][0] - NOON) + 1
        point_end = next(end for time_ms, end in made.points if time_ms >= until_ms)
        by_append = restored(made, tmp_path / f"append-{number}", until_ms)
        cut = made.cut(until_ms, point_end)
        assert by_append == of_model(made.committed(cut)), f"in append order, until {until_ms}"
        by_time = restored(made, tmp_path / f"time-{number}", until_ms, order="time")
        wanted = [row for row in made.committed(made.points[-1][1]) if row.timestamp < until_ms]
        assert by_time == of_model(wanted), f"by time, until {until_ms}"


def restored(made: History, folder: Path, until_ms: int | None, **options: object) -> list[tuple[object, ...]]:
    request = RestoreRequest(backup=str(made.backup), target=str(folder), until_ms=until_ms, **options)  # type: ignore[arg-type]
    report = restore(plan_restore(request), ManualClock(NOON), work=folder)
    assert report.differences == []
    assert run("verify", folder).exit_code == 0
    return plain(tidelog.scan(folder, TOPIC, isolation="read_committed").read_all().to_pylist())


def test_all_of_a_point_is_byte_for_byte(made: History, tmp_path: Path) -> None:
    run_ok("restore", made.backup, "--to", tmp_path / "folder")
    log = b"".join(path.read_bytes() for path in sorted((tmp_path / "folder" / f"{TOPIC}-0").glob("*.log")))
    source = b"".join(path.read_bytes() for path in made.builder.logs())
    assert source.startswith(log)
    assert log


def test_restored_records_are_counted(tmp_path: Path) -> None:
    """Also compressed messages of format 1, of which a header does not say how many there are."""
    made = history(tmp_path, 2)
    for _ in range(2):  # The second time nothing is left to do.
        (line,) = run_ok("restore", made.backup, "--to", tmp_path / "f", "--json").json_lines
        assert line["records"] == len(made.committed(made.points[-1][1]))
    (line,) = run_ok("restore", made.backup, "--to", tmp_path / "g", "--json", "--no-verify").json_lines
    assert line["records"] is None


def test_late_records_are_counted(made: History, tmp_path: Path) -> None:
    until_ms = NOON + 30 * STEP_MS
    (line,) = run_ok("restore", made.backup, "--to", tmp_path / "f", "--until", until_ms, "--dry-run", "--json").json_lines
    late = [row for row in made.builder.rows if line["end_offset"] <= row.offset and row.timestamp < until_ms]
    stable = next(end for time_ms, end in made.points if time_ms >= until_ms)
    assert line["late_records"] == sum(row.offset < stable for row in late)
    assert not (tmp_path / "f").exists()


def test_the_same_command_again_changes_nothing(made: History, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    run_ok("restore", made.backup, "--to", folder)
    files = {path: path.read_bytes() for path in folder.rglob("*.log")}
    run_ok("restore", made.backup, "--to", folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.log")} == files
    other = run("restore", made.backup, "--to", folder, "--until", NOON + 5 * STEP_MS)
    assert other.exit_code == 1
    assert "the folder belongs to a different restore" in other.stderr
    assert "until_ms None" in other.stderr and "topics {" not in other.stderr


def test_refusals(made: History, tmp_path: Path) -> None:
    late = run("restore", made.backup, "--to", tmp_path / "f", "--until", NOON + 3_600_000)
    assert late.exit_code == 1
    assert "the backup ends before this time" in late.stderr
    near = run("restore", made.backup, "--to", tmp_path / "f", "--topics", "order")
    assert near.exit_code == 1
    assert "orders" in near.stderr
    run_ok("restore", made.backup, "--to", tmp_path / "there")
    (tmp_path / "there" / "tidelog-restore.json").unlink()
    for only in ([], ["--dry-run"]):
        again = run("restore", made.backup, "--to", tmp_path / "there", *only)
        assert again.exit_code == 1
        assert "topics already exist: orders" in again.stderr
    renamed = run_ok("restore", made.backup, "--to", tmp_path / "new", "--rename", "orders=old-orders")
    assert "old-orders" in renamed.stdout


def test_a_damaged_point_hides_no_other(made: History, tmp_path: Path) -> None:
    backup = Path(shutil.copytree(made.backup, tmp_path / "backup"))
    first, *others = sorted((backup / "points").iterdir())
    first.write_bytes(first.read_bytes()[:-2])
    listed = run("backup", "list", backup, "--json")
    assert listed.exit_code == 3 and len(listed.json_lines) == len(others)
    assert first.name in listed.stderr
