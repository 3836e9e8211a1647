"""Clocks that jump while a backup follows, and figures that cannot be written."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest

from tests.backup.model_source import ModelSource
from tidelog.backup.target import FolderTarget
from tidelog.capture.capture import Capture
from tidelog.capture.figures import Figures
from tidelog.capture.following import follow
from tidelog.clock import ManualClock, SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest

HOUR_MS = 3_600_000


def made(seed: int = 1) -> ModelSource:
    source = ModelSource(seed)
    source.is_busy = False
    for name, topic in source.known.items():
        source._produce(name, topic, 0, topic.partitions[0])
    return source


def test_a_point_is_not_late_because_the_clock_is_set_back(tmp_path: Path) -> None:
    class SetBack(SystemClock):
        def now_ms(self) -> int:
            return next(times)

    times = itertools.count(1_700_000_000_000, -HOUR_MS)
    source = made()
    waited: list[float] = []
    points = follow(
        Capture(source, FolderTarget(tmp_path), ManualClock(source.now)), SetBack(), 60_000, waited.append, Figures(None)
    )
    for _ in range(3):
        next(points)
    assert all(0 <= one <= 60 for one in waited)


def test_a_point_of_a_clock_that_was_ahead_is_not_restored_from(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says that it has everything up to tomorrow."""
    source = made()
    backup, noon = tmp_path / "backup", source.now // 1000 * 1000
    for hours in (0, 24, 1, 2):
        topic = source.known["a"]
        source._produce("a", topic, 0, topic.partitions[0])
        Capture(source, FolderTarget(backup), ManualClock(noon + hours * HOUR_MS)).take()
    assert "before the time of point 2" in caplog.text

    def point(hours: float) -> int:
        until_ms = noon + int(hours * HOUR_MS)
        return plan_restore(RestoreRequest(backup=str(backup), target=str(tmp_path / "to"), until_ms=until_ms)).point.sequence

    assert [point(hours) for hours in (0, 0.5, 1, 1.5, 2)] == [1, 3, 3, 4, 4]
    with pytest.raises(InvalidArgumentError, match="the backup ends before this time"):
        point(3)


def test_figures_do_not_end_a_backup(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The age of an earlier process's point is among them, even if this one takes none."""
    source = made()
    clock = ManualClock(source.now)
    Capture(source, FolderTarget(tmp_path / "backup"), clock).take()
    caplog.set_level(logging.WARNING)
    points = follow(
        Capture(source, FolderTarget(tmp_path / "backup"), clock),
        clock,
        60_000,
        lambda seconds: clock.advance(int(seconds * 1000)),
        Figures(tmp_path / "no such folder" / "figures.prom"),
    )
    assert next(points).sequence == 2
    assert "the metrics file for Prometheus could not be updated" in caplog.text
    figures = Figures(tmp_path / "figures.prom")
    figures.known(next(points))
    figures.failed(clock.now_ms() + 5_000)
    values = dict(line.split() for line in (tmp_path / "figures.prom").read_text().splitlines() if not line.startswith("#"))
    assert values["tidelog_backup_lag_seconds"] == "5"
    assert values["tidelog_backup_points_total"] == "0"
