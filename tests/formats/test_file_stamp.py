"""A file's stamp is kept only once a later change is sure to show in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.formats import file_stamp
from tidelog.formats.file_stamp import COARSE_NS, UNKNOWN, WAIT_NS, FileStamp, settled_stamp

NOW_NS = 1_600_000_000_123_456_789
TICK_NS = 4_000_000


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock for files that goes in ticks, and time that passes only while the caller sleeps."""
    naps: list[float] = []

    def passed_ns() -> int:
        return round(sum(naps) * 1e9)

    monkeypatch.setattr(file_stamp.time, "sleep", naps.append)
    monkeypatch.setattr(file_stamp.time, "monotonic_ns", passed_ns)
    monkeypatch.setattr(file_stamp, "_file_clock_ns", lambda: NOW_NS + passed_ns() // TICK_NS * TICK_NS)
    return naps


def stamp(changed_ns: int) -> Callable[[], FileStamp]:
    return lambda: FileStamp(7, 100, 5, changed_ns)


def test_a_file_of_old_is_settled(slept: list[float]) -> None:
    assert settled_stamp(stamp(NOW_NS - 1)) == FileStamp(7, 100, 5, NOW_NS - 1)
    assert not slept


def test_one_that_was_changed_in_this_tick_is_waited_for(slept: list[float]) -> None:
    assert settled_stamp(stamp(NOW_NS)).changed_ns == NOW_NS
    assert sum(slept) == pytest.approx(TICK_NS / 1e9, abs=0.0011)


def test_one_that_changes_all_the_time_is_not(slept: list[float]) -> None:
    def changed_now() -> FileStamp:
        return FileStamp(7, 100, 5, file_stamp._file_clock_ns())

    assert settled_stamp(changed_now) == UNKNOWN
    assert sum(slept) <= WAIT_NS / 1e9 + 0.002


def test_a_clock_that_is_ahead_is_not_waited_for(slept: list[float]) -> None:
    assert settled_stamp(stamp(NOW_NS + 10 * WAIT_NS)) == UNKNOWN
    assert not slept


def test_times_in_whole_seconds_are_coarse(slept: list[float]) -> None:
    second = NOW_NS // 1_000_000_000 * 1_000_000_000
    assert settled_stamp(stamp(second)) == UNKNOWN
    assert settled_stamp(stamp(second - COARSE_NS)) != UNKNOWN


def test_every_write_shows_in_a_stamp_that_has_settled(tmp_path: Path) -> None:
    """On the file system that is here, with times of modification put back."""
    path = tmp_path / "file"
    path.write_bytes(b"0")
    os.utime(path, ns=(NOW_NS, NOW_NS))
    for n in range(100):
        before = settled_stamp(lambda: FileStamp.of(path.stat()))
        assert before != UNKNOWN
        with path.open("r+b") as file:
            file.write(b"%d" % (n % 10))
        os.utime(path, ns=(NOW_NS, NOW_NS))
        after = FileStamp.of(path.stat())
        assert after[:3] == before[:3]
        assert after != before
