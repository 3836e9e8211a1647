"""Random damage to a backup, of every kind: `verify_backup` finds each, and says whose records it is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.backup.model_source import ModelSource
from tests.examples import IS_SOAK
from tidelog.backup.backup import open_backup
from tidelog.backup.expire import expire
from tidelog.backup.layout import HEAD
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock

CASES = 5000 if IS_SOAK else 200
DAMAGES = ("flip", "missing", "truncated", "swapped", "older", "longer", "empty")


def backup_of(root: Path, seed: int) -> Path:
    """A backup with several points, some of which have expired."""
    source = ModelSource(seed)
    clock = ManualClock(source.now)
    capture = Capture(source, FolderTarget(root), clock)
    for _ in range(6):
        for _ in range(60):
            source.tick()
        clock.advance(source.now - clock.now_ms())
        capture.take()
    backup = open_backup(root)
    expire(backup, backup.points()[2].time_ms, 1 << 62, grace_ms=0)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backup_of(tmp_path_factory.mktemp("backup") / "b", 3)


def test_a_whole_backup_has_no_findings(root: Path) -> None:
    report = verify_backup(FolderTarget(root))
    assert report.findings == []
    assert report.points == 4
    assert report.files == sum(1 for one in (root / "data").rglob("*") if one.is_file())


def damage(rng: random.Random, kind: str, victim: Path, others: list[Path]) -> bool:
    """Damage a file; return whether its bytes are others now."""
    before = victim.read_bytes()
    if kind == "missing":
        victim.unlink()
        return True
    after = bytearray(before)
    if kind == "flip":
        after[rng.randrange(len(after))] ^= 1 << rng.randrange(8)
    elif kind == "truncated":
        del after[rng.randrange(len(after)) :]
    elif kind == "empty":
        after.clear()
    elif kind == "longer":
        after += rng.randbytes(rng.randint(1, 20))
    else:  # Another object of the same kind in its place: for the manifests and the data of a partition often an older version.
        alike = [one for one in others if one.parent == victim.parent] if kind == "older" else others
        after = bytearray(rng.choice(alike or others).read_bytes())
    victim.write_bytes(after)
    return bytes(after) != before


def test_each_damage_is_found(root: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    files = sorted(one for one in root.rglob("*") if one.is_file())
    folders = sorted({one.relative_to(root).parts[0] for one in files})
    kept = tmp_path / "kept"
    kinds: set[str] = set()
    for case in range(CASES):
        kind = DAMAGES[case % len(DAMAGES)]
        folder = rng.choice(folders)  # Of each kind of object as many as of any other.
        victim = rng.choice([one for one in files if one.relative_to(root).parts[0] == folder])
        alike = [one for one in files if one.suffix == victim.suffix and one != victim] or [one for one in files if one != victim]
        shutil.copy2(victim, kept)
        name = victim.relative_to(root).as_posix()
        if damage(rng, kind, victim, alike):
            kinds.add(f"{kind} {name.partition('/')[0]}")
            if kind == "missing" and name == HEAD:
                with pytest.raises(Exception, match="no backup here"):
                    verify_backup(FolderTarget(root), threads=1)
            else:
                found = verify_backup(FolderTarget(root), threads=1).findings
                assert found, (kind, name)
                if name.startswith("data/"):
                    assert all(name in one.object and one.topic in ("a", "b") for one in found), (kind, name, found)
                    assert all(one.start_offset is not None and one.first_point is not None for one in found)
        shutil.copy2(kept, victim)
    assert verify_backup(FolderTarget(root), threads=1).findings == []
    assert len(kinds) > 20


def test_damage_of_records_names_topic_offsets_times_and_points(root: Path, tmp_path: Path) -> None:
    backup = open_backup(root)
    point = backup.point()
    known = [one for topic in backup.topics(point).values() for one in backup.partitions(topic).values()]
    partition = next(one for one in known if one.size_bytes)
    piece = list(backup.segments(partition))[-1].pieces[-1]
    path = root / backup.key(partition, piece, ".log")
    before = path.read_bytes()
    path.write_bytes(before[:-1])
    (found,) = verify_backup(backup.target).findings
    path.write_bytes(before)
    assert (found.topic, found.partition) == (partition.topic, partition.partition)
    assert (found.start_offset, found.end_offset) == (piece.base_offset, piece.end_offset)
    assert found.last_time == max(piece.first_time, piece.last_time, piece.max_time)
    assert found.last_point == point.sequence
