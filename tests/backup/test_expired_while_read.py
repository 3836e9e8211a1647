"""`backup expire` removes a point while it is read: what reads it gets everything, or one error that names the point."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.backup.model_source import ModelSource
from tidelog.backup.backup import open_backup
from tidelog.backup.expire import expire
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock
from tidelog.errors import PointExpiredError
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

TOPIC, PARTITIONS, BATCHES = "gone", 2, 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup whose second point needs no object of the first: the topic was deleted between them."""
    root = tmp_path_factory.mktemp("made") / "b"
    source = ModelSource(2)
    source.is_busy = False
    capture = Capture(source, FolderTarget(root), ManualClock(source.now))
    for name in (TOPIC, "kept"):
        source.known = {}
        source.create(name)
        topic = source.known[name]
        topic.settings["segment.bytes"] = "400"
        topic.partitions = (topic.partitions * PARTITIONS)[:1] + [type(topic.partitions[0])() for _ in range(PARTITIONS - 1)]
        for partition in topic.partitions:
            for number in range(BATCHES):
                records = [Record(partition.end + i, source.now + number, 0, b"k", b"v" * 100) for i in range(3)]
                partition.append(build_batch_v2(records))
        capture.take()
    assert [one.sequence for one in open_backup(root).points()] == [1, 2]
    return root


def expire_first(root: Path) -> None:
    backup = open_backup(root)
    done = expire(backup, backup.points()[-1].time_ms + 1, 1 << 62, grace_ms=0)
    assert done.objects
    assert [one.sequence for one in backup.points()] == [2]


def scanned(root: Path, _: Path) -> int:
    return int(tidelog.scan(f"backup:{root}#1", TOPIC).read_all().num_rows)


def restored(root: Path, target: Path) -> int:
    plan = plan_restore(RestoreRequest(backup=str(root), target=str(target), point=1))
    try:
        report = restore(plan, ManualClock(plan.point.taken_ms), work=target)
    except PointExpiredError as error:
        is_there = bool(list(target.glob(f"{TOPIC}-*")))
        assert is_there == error.message.startswith("everything was restored")
        if is_there:
            assert tidelog.scan(target, TOPIC).read_all().num_rows == PARTITIONS * BATCHES * 3
        raise
    assert report.differences == []
    return sum(one.records for one in report.digests.values())


def verified(root: Path, _: Path) -> int:
    """Both points are whole, as long as they are there."""
    assert verify_backup(FolderTarget(root)).findings == []
    return PARTITIONS * BATCHES * 3


@pytest.mark.parametrize("read", [scanned, restored, verified])
def test_expired_before_any_object_is_opened(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path, Path], int]
) -> None:
    """Whichever object is opened next, there are never fewer records."""
    real, errors, number = os.open, 0, 0
    while True:
        root, opened = tmp_path / f"{number}", 0
        shutil.copytree(made, root)

        def counting(path: Any, *arguments: Any, root: Path = root, number: int = number, **options: Any) -> int:
            nonlocal opened
            if str(path).startswith(f"{root}{os.sep}"):
                opened += 1
                if opened == number + 1:
                    expire_first(root)
            return real(path, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, "open", counting)
            try:
                assert read(root, tmp_path / f"{number}-restored") == PARTITIONS * BATCHES * 3
            except PointExpiredError as error:
                errors += 1
                assert "point 1 of this backup was removed by `backup expire`" in str(error)
                assert "it has only point 2" in str(error)
        shutil.rmtree(root)
        if opened <= number:
            break
        number += 1
    assert number > PARTITIONS * BATCHES
    assert (errors > 0) == (read is not verified)


def interrupted(where: str, root: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in which `backup expire` runs, as a process of its own, before a function is called for the first time."""
    module, _, name = where.partition(":")
    expiring = ["-m", "tidelog", "backup", "expire", str(root), "--keep", "1s", "--grace", "0s"]
    code = f"""
import importlib, subprocess, sys
owner = importlib.import_module({module!r})
*path, last = {name.split(".")!r}
for part in path: owner = getattr(owner, part)
real, done = getattr(owner, last), []
def first(*arguments, **options):
    if not done:
        done.append(1)
        subprocess.run([sys.executable, *{expiring!r}], check=True, stdout=subprocess.DEVNULL)
    return real(*arguments, **options)
setattr(owner, last, first)
from tidelog.cli import main
sys.argv = {["tidelog", *map(str, arguments)]!r}
sys.exit(main())
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("where", "command"),
    [
        ("tidelog.restore.restoring:refuse_damaged", "restore"),
        ("tidelog.storage.partition.partition_log:PartitionLog.append_as_follower", "restore"),
        ("tidelog.backup.joined_file:open_handle", "cat"),
        ("tidelog.backup.joined_file:open_handle", "verify"),
        ("tidelog.backup.backup:Backup.topic", "show"),
    ],
)
def test_commands_end_with_one_error(made: Path, tmp_path: Path, where: str, command: str) -> None:
    root = shutil.copytree(made, tmp_path / "b")
    arguments = {
        "restore": ("restore", root, "--to", tmp_path / "f", "--point", 1),
        "cat": ("cat", f"backup:{root}#1", TOPIC),
        "verify": ("verify", f"backup:{root}#1"),
        "show": ("backup", "show", root, "--point", 1),
    }[command]
    ran = interrupted(where, root, *arguments)
    assert ran.returncode == 1, ran
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("tidelog: "))
    assert "point 1 of this backup was removed by `backup expire`" in line
    assert "it has only point 2" in line
    assert not list(tmp_path.glob(f"f/{TOPIC}-*"))


def test_a_verification_reports_no_damage(made: Path, tmp_path: Path) -> None:
    root = shutil.copytree(made, tmp_path / "b")
    ran = interrupted("tidelog.backup.verify:check_file", root, "backup", "verify", root)
    assert ran.returncode == 0, ran
