"""A folder in which Kafka stopped in the middle of a replacement of segments is whole: readers, `verify` and a start agree on it.

What Kafka itself makes of each state: tests/interop/test_replacements.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.reader.replacements import FIRST_MS, KEY, REPLACEMENTS, Replacement, states
from tidelog.check.folder_verify import verify_folder
from tidelog.formats import names
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.testing import Broker

KEY_DIR = names.log_dir_name(*KEY)


def complete(folder: Path, end: int) -> None:
    """Add what a folder has beside its partitions."""
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        write_offset_checkpoint(folder / name, {KEY: end})
    write_offset_checkpoint(folder / names.LOG_START_OFFSET_CHECKPOINT, {})
    write_offset_checkpoint(folder / names.CLEANER_CHECKPOINT, {KEY: end - 10})
    (folder / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n")
    (folder / KEY_DIR / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n0 0\n")


def aborted(one: Replacement, offsets: list[int]) -> set[int]:
    """Records that read_committed leaves out, markers among them."""
    return {offset for offset in offsets if one.transactions and offset % 10 in (1, 4, 9)}


@pytest.mark.parametrize("one", REPLACEMENTS, ids=lambda one: one.name)
def test_every_moment(tmp_path: Path, one: Replacement) -> None:
    folder = tmp_path / "data"
    seen: set[str] = set()
    for state in states(one, folder):
        if not state.step:
            complete(folder, max(one.rows_before) + 1)
        rows = one.rows_after if state.is_done else one.rows_before
        data = [offset for offset in rows if not (one.transactions and offset % 10 == 9)]
        for isolation, expected in (
            ("read_uncommitted", data),
            ("read_committed", [offset for offset in data if offset not in aborted(one, rows)]),
        ):
            report = tidelog.ScanReport()
            table = tidelog.scan(folder, KEY.topic, columns=["offset"], isolation=isolation, report=report).read_all()
            assert table["offset"].to_pylist() == expected, state
            assert report.is_complete, state
        for offset in (0, 5, 10, 15, 19, 20, 29):
            (found,) = run_ok("find", folder, KEY.topic, "--at", FIRST_MS + 1000 * offset, "--json").json_lines
            assert found["offset"] == next((row for row in rows if row >= offset), -1), state
        verified = verify_folder(folder)
        assert [str(one) for one in verified.all_findings() if one.is_fault] == [], state
        left = [path.name for path in (folder / KEY_DIR).iterdir() if path.name.endswith((".swap", ".cleaned"))]
        told = [one.what for one in verified.all_findings() if "interrupted" in one.what]
        assert len(told) == bool(left), (state, told)
        seen.update(told)
        loaded = tmp_path / "loaded"
        shutil.copytree(folder, loaded)
        with Broker(loaded) as broker, tidelog.connect(broker.bootstrap_servers) as client:
            assert [record.offset for record in client.read(KEY.topic)] == data, state
        again = verify_folder(loaded)
        assert [str(one) for one in again.all_findings() if one.is_fault] == [], state
        shutil.rmtree(loaded)
    assert len(seen) >= 2


def test_the_command_says_so_and_ends_well(tmp_path: Path) -> None:
    one = REPLACEMENTS[1]
    for state in states(one, tmp_path / "data"):
        if not state.step:
            complete(tmp_path / "data", 30)
        if "in place: 00000000000000000000.log.swap" in state.what:
            break
    ran = run("verify", tmp_path / "data")
    assert ran.exit_code == 0
    assert "interrupted" in ran.stderr + ran.stdout


def test_a_swap_without_an_offset_is_a_fault(tmp_path: Path) -> None:
    next(states(REPLACEMENTS[0], tmp_path / "data"))
    complete(tmp_path / "data", 30)
    (tmp_path / "data" / KEY_DIR / "x.index.swap").touch()
    assert run("verify", tmp_path / "data").exit_code == 3
