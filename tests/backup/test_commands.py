"""What the commands of `tidelog backup` say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backup.model_source import ModelSource
from tests.cli.conftest import run, run_ok
from tidelog.backup.backup import open_backup
from tidelog.backup.expire import expire
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import Finding
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock
from tidelog.formats.partition_metadata import format_topic_id

ALWAYS = 1 << 62


@pytest.fixture
def source() -> ModelSource:
    source = ModelSource(1)
    source.is_busy = False
    return source


def points(source: ModelSource, root: Path, count: int) -> Path:
    for _ in range(count):
        topic = source.known["a"]
        source._produce("a", topic, 0, topic.partitions[0])
        source.now += 60_000
        Capture(source, FolderTarget(root), ManualClock(source.now)).take()
    return root


@pytest.mark.parametrize("lost", [(3,), (1, 2), (2, 4)])
def test_list_shows_missing_points(tmp_path: Path, source: ModelSource, lost: tuple[int, ...]) -> None:
    """The first, one between others, and the newest, whose seal remains."""
    root = points(source, tmp_path / "b", 4)
    assert run_ok("backup", "list", root).stderr == ""
    for number in lost:
        next((root / "points").glob(f"{number:08d}-*")).unlink()
    ran = run("backup", "list", root)
    assert ran.exit_code == 3
    rows = [line.split()[:2] for line in ran.stdout.splitlines()[1:]]
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4]
    assert [int(row[0]) for row in rows if row[1] == "missing"] == list(lost)
    assert f"missing from the backup: {'points' if len(lost) > 1 else 'point'} {', '.join(map(str, lost))}" in ran.stderr
    as_json = run("backup", "list", root, "--json")
    assert as_json.exit_code == 3
    assert len(as_json.stdout.splitlines()) == 4 - len(lost)


def test_list_says_nothing_of_expired_points(tmp_path: Path, source: ModelSource) -> None:
    root = points(source, tmp_path / "b", 4)
    backup = open_backup(root)
    expire(backup, backup.points()[2].time_ms, ALWAYS)
    assert [line.split()[0] for line in run_ok("backup", "list", root).stdout.splitlines()[1:]] == ["3", "4"]


def test_verify_counts_points_and_data_files(tmp_path: Path, source: ModelSource) -> None:
    root = points(source, tmp_path / "b", 1)
    assert "whole: 1 point, 1 data file, " in run_ok("backup", "verify", root).stdout
    points(source, root, 1)
    assert "whole: 2 points, 2 data files, " in run_ok("backup", "verify", root).stdout


def test_a_finding_names_one_point_or_several() -> None:
    assert str(Finding("gone", "x", first_point=2, last_point=2)) == "gone, point 2 (x)"
    assert str(Finding("gone", "x", first_point=2, last_point=4)) == "gone, points 2 to 4 (x)"


def test_expire_says_what_waits_and_a_later_run_removes_it(tmp_path: Path, source: ModelSource) -> None:
    root = points(source, tmp_path / "b", 3)
    now_ms = max(one.stat().st_mtime_ns for one in root.rglob("*")) // 1_000_000
    backup = open_backup(root)
    before = {one for one in (root / "manifests").rglob("*") if one.is_file()}
    done = expire(backup, ALWAYS, now_ms, grace_ms=60_000)
    assert (len(done.points), done.objects, done.kept_points) == (2, 0, 1)
    assert done.waiting_objects > 0
    assert {one for one in (root / "manifests").rglob("*") if one.is_file()} == before
    ran = run_ok("backup", "expire", root, "--keep", "1s", "--dry-run")
    assert f"kept {done.waiting_objects} objects (" in ran.stderr
    fields = json.loads(run_ok("backup", "expire", root, "--keep", "1s", "--dry-run", "--json").stdout)
    assert (fields["waiting_objects"], fields["waiting_bytes"]) == (done.waiting_objects, done.waiting_bytes)
    later = expire(backup, ALWAYS, now_ms + 60_002, grace_ms=60_000)
    assert (later.points, later.objects, later.size_bytes) == ((), done.waiting_objects, done.waiting_bytes)
    assert later.waiting_objects == 0
    assert "that no point needs" not in run_ok("backup", "expire", root, "--keep", "1s").stderr


def test_every_needs_follow(tmp_path: Path) -> None:
    ran = run("backup", tmp_path, tmp_path / "b", "--every", "5s")
    assert ran.exit_code == 2
    assert "--every needs --follow" in ran.stderr


def test_people_read_topic_ids_as_kafka_prints_them(tmp_path: Path, source: ModelSource) -> None:
    root = points(source, tmp_path / "b", 1)
    before = source.known["a"].topic_id
    shown = run_ok("backup", "show", root).stdout
    assert format_topic_id(before) in shown
    assert str(before) not in shown
    assert str(before) in run_ok("backup", "show", root, "--json").stdout
    source.create("a")
    points(source, root, 1)
    ids = [before, source.known["a"].topic_id]
    for arguments, texts in (((), map(format_topic_id, ids)), (("--json",), map(str, ids))):
        stdout = run_ok("backup", "diff", root, "1", *arguments).stdout
        assert all(text in stdout for text in texts)
