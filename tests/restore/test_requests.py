"""What a restore refuses because of its options, what it says of topics that it does not restore, and which restore continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import run, run_ok
from tests.restore.logs import NOON, Backed


@pytest.fixture
def backed(tmp_path: Path) -> Backed:
    return Backed(tmp_path)


def write(backed: Backed, *topics: str) -> None:
    for topic in topics:
        log = backed.log(topic)
        log.append([(NOON - 10, b"k", topic.encode()), (NOON + 10_000, b"k", b"later")])
        log.close()


@pytest.mark.parametrize("order", ["append", "time"])
def test_a_chosen_point_that_ends_before_the_time(backed: Backed, tmp_path: Path, order: str) -> None:
    write(backed, "a")
    backed.take()
    backed.take()
    arguments = ["restore", backed.backup, "--to", tmp_path / "f", "--by", order, "--until"]
    ran = run(*arguments, NOON + 1, "--point", 1)
    assert ran.exit_code == 1
    assert "point 1 ends before this time: omit --until or --point" in ran.error
    assert "expected at most 2013-07-10T12:00:00.000Z, the time of point 1" in ran.error
    assert not (tmp_path / "f").exists()
    run_ok(*arguments, NOON + 1, "--point", 2)
