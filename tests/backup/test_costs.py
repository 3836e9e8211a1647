"""What backups and restores read and write grows with data and partitions, not faster: bytes and calls are counted, not time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.backup.model_source import ModelSource, Partition
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock
from tidelog.formats.paths import local_handle
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

POINTS = 10
"""How many points the smaller backup has; the larger one has ten times as many, and ten times the data."""

Costs = dict[str, Counter[str]]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the bytes that are read and written, the reads, and the files that are opened."""
    found: Counter[str] = Counter()

    def counting(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counter(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            found[what] += 1
            if what == "reads":
                found["bytes"] += result if isinstance(result, int) else len(result)
            return result

        return counter

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", counting("files", os.open))
        patch.setattr(os, "preadv", counting("reads", os.preadv))
        patch.setattr(local_handle, "pread", counting("reads", local_handle.pread))
        patch.setattr(os, "fsync", counting("syncs", lambda _: None))
        yield found


def costs(root: Path, points: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Costs]:
    """Return the size of a backup, and what the last point, its verification and two restores cost."""
    source = ModelSource(5)
    source.is_busy = False
    source.known = {}
    source.create("t")
    topic = source.known["t"]
    topic.settings["segment.bytes"] = "50000"
    clock = ManualClock(source.now)
    capture = Capture(source, FolderTarget(root / "b"), clock)
    found: Costs = {}
    for _ in range(points):
        for partition in topic.partitions:
            source.now += 1000
            clock.advance(1000)
            records = [Record(partition.end + i, source.now, 0, b"k", os.urandom(1000)) for i in range(20)]
            partition.append(build_batch_v2(records))
        with counted(monkeypatch) as found["point"]:
            point = capture.take()
    with counted(monkeypatch) as found["resume"]:
        Capture(source, FolderTarget(root / "b"), ManualClock(source.now)).take()
    with counted(monkeypatch) as found["verify"]:
        assert verify_backup(FolderTarget(root / "b")).findings == []
    for name, until_ms in (("restore", None), ("restore until", source.now - 2000)):
        request = RestoreRequest(backup=str(root / "b"), target=str(root / name), until_ms=until_ms, point=point.sequence)
        with counted(monkeypatch) as found[name]:
            assert restore(plan_restore(request), ManualClock(source.now), work=root).differences == []
    return point.size_bytes, found


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="reads are counted as Linux makes them")
def test_costs_grow_no_faster_than_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, before = costs(tmp_path / "small", POINTS, monkeypatch)
    large, after = costs(tmp_path / "large", 10 * POINTS, monkeypatch)
    growth = large / small
    assert growth == pytest.approx(10, rel=0.01)
    for what, counts in after.items():
        for unit, count in counts.items():
            if unit == "syncs":  # Joined pieces and closed segments are synced again.
                assert count <= 1.2 * growth * before[what][unit], (what, count, before[what])
                continue
            # A point reads and writes what is new, and manifests, which name 64 segments at most.
            most = 4 * before[what][unit] + 64 if what in ("point", "resume") else 1.2 * growth * before[what][unit]
            if (what, unit) not in (("point", "bytes"), ("resume", "bytes")):
                assert count <= most, (what, unit, count, before[what][unit])
            else:
                assert count <= 100_000, (what, unit, count)


SYNCS_OF_A_PARTITION = {"backup": 7, "restore": 8}
"""Kafka keeps six files of a partition with records, in a folder; some are renamed, so their folder is synced at once."""


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="reads are counted as Linux makes them")
@pytest.mark.parametrize("is_one_topic", [True, False])
def test_costs_of_small_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_topic: bool) -> None:
    """Each further partition costs as much as the one before, in a topic of its own as well, and few waits for the disk."""
    found: dict[int, Costs] = {}
    counts = 8, 16, 32
    for partitions in counts:
        root = tmp_path / f"{partitions}"
        source = ModelSource(5)
        source.is_busy = False
        source.known = {}
        for number in range(1 if is_one_topic else partitions):
            source.create(f"t{number}")
            topic = source.known[f"t{number}"]
            topic.partitions = [Partition() for _ in range(partitions if is_one_topic else 1)]
            for partition in topic.partitions:
                partition.append(build_batch_v2([Record(0, source.now, 0, b"k", b"v")]))
        backup, here = root / "b", found.setdefault(partitions, {})
        with counted(monkeypatch) as here["backup"]:
            Capture(source, FolderTarget(backup), ManualClock(source.now)).take()
        with counted(monkeypatch) as here["verify"]:
            assert verify_backup(FolderTarget(backup)).findings == []
        request = RestoreRequest(backup=str(backup), target=str(root / "r"))
        with counted(monkeypatch) as here["plan"]:
            plan = plan_restore(request)
        with counted(monkeypatch) as here["restore"]:
            assert restore(plan, ManualClock(source.now), work=root).differences == []
    few, some, many = (found[partitions] for partitions in counts)
    for what, costs_of_many in many.items():
        for unit, count in costs_of_many.items():
            first, second = some[what][unit] - few[what][unit], count - some[what][unit]
            if unit == "bytes":
                assert second <= 2.4 * first, (what, unit)  # A catalog's lines vary in length.
            else:
                assert second <= 2 * first + 4, (what, unit, first, second)
    for what, most in SYNCS_OF_A_PARTITION.items():
        assert many[what]["syncs"] - some[what]["syncs"] <= most * (counts[2] - counts[1]), (what, many[what], some[what])
