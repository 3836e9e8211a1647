"""Random histories of a cluster, backed up while they happen and while the backup is killed: points have what the model has.

A kill is an exception before or after any write to the target; nothing of the process survives it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backup.model_source import ModelSource
from tests.examples import examples
from tidelog.backup.backup import Backup, open_backup
from tidelog.backup.backup_path import BackupPath, PointFolder
from tidelog.backup.expire import expire
from tidelog.backup.manifest import Point
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import iter_headers

POINTS = 12


class Killed(BaseException):
    """The process is gone."""


class KilledTarget(FolderTarget):
    """A folder; the process is killed at one of its writes."""

    def __init__(self, root: Path, survived: int, *, is_before: bool) -> None:
        super().__init__(root)
        self._left = survived
        self._is_before = is_before

    def put_soon(self, key: str, data: bytes | bytearray | memoryview) -> None:
        self._left -= 1
        if self._left < 0 and self._is_before:
            raise Killed
        super().put_soon(key, data)
        if self._left < 0:
            raise Killed


def stored(backup: Backup, point: Point, key: TopicPartition) -> list[bytes]:
    """The batches of a partition, read as from a data folder."""
    folder = LogDir(BackupPath(PointFolder(backup.target, point.sequence)))
    found: list[bytes] = []
    with folder.log(*key) as log:
        for segment in log.segments:
            found += [bytes(segment.read_batch(header)) for header in segment.headers(check_crc=True)]
            segment.close()
    return found


def check(source: ModelSource, backup: Backup, point: Point, answered: set[TopicPartition]) -> None:
    """Compare a point with the model. `source` has gone on since: what it appended is not in the point."""
    catalog = backup.catalog(point)
    assert catalog.keys() == source.known.keys()
    cut: dict[tuple[str, int], int] = {}
    for name, entry in catalog.items():
        topic = source.known[name]
        assert entry.topic_id == topic.topic_id
        for ends in entry.partitions:
            key = TopicPartition(name, ends.partition)
            cut[key] = ends.stable_offset
            if key not in answered:
                continue
            partition = source.partition(key)
            found = stored(backup, point, key) if ends.size_bytes else []
            spans = [next(iter_headers(memoryview(one))) for one in found]
            assert all(before.next_offset <= after.base_offset for before, after in pairwise(spans))
            wanted = [one.data for one in partition.batches if one.base < ends.end_offset]
            assert [one for one in found if one in set(wanted)] == wanted
            assert partition.written.issuperset(found)
            if not partition.was_truncated:
                partition.seen = [one for one in partition.seen if one.next > ends.log_start_offset]
                start = partition.seen[-1].next if partition.seen else 0
                partition.seen += [one for one in partition.batches if start <= one.base < ends.end_offset]
                # Whole segments are left out; a point has at least what is after the log's start.
                assert [one.data for one in partition.seen] == found[len(found) - len(partition.seen) :]
    if point.is_cut_consistent:
        for one in source.transactions:
            places = [place for place, topic_id in one.places.items() if place in cut and catalog[place[0]].topic_id == topic_id]
            # Retention may have removed a part, even with the marker.
            places = [
                place
                for place in places
                if not 0 <= one.markers.get(place, -1) < source.partition(TopicPartition(*place)).log_start
            ]
            decided = [0 <= one.markers.get(place, -1) < cut[place] for place in places]
            assert all(decided) or not any(decided), (one, cut)


def points_of(source: ModelSource, root: Path, clock: ManualClock) -> Iterator[Point]:
    """Take points, and be killed now and then."""
    rng = source.rng
    capture: Capture | None = None
    known: int | None = None
    for _ in range(POINTS):
        for _ in range(rng.choice((0, 3, 30))):
            source.tick()
        clock.advance(source.now - clock.now_ms())
        source.away = {
            TopicPartition(name, number)
            for name, topic in source.known.items()
            for number in range(len(topic.partitions))
            if rng.random() < 0.05
        }
        if capture is None or rng.random() < 0.3:
            is_killed = rng.random() < 0.5
            target = KilledTarget(root, rng.randint(0, 25), is_before=rng.random() < 0.5) if is_killed else FolderTarget(root)
            try:
                capture = Capture(source, target, clock)
            except Killed:
                capture = None
                continue
        try:
            point = capture.take()
        except Killed:
            capture = None
            found = open_backup(root).points()
            if not found or (known is not None and found[-1].sequence == known):
                continue
            point = open_backup(root).point()  # It was written before the process was killed.
        known = point.sequence
        yield point


@examples(40)
@given(st.integers(0, 2**32))
def test_points_have_what_the_cluster_had(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    source = ModelSource(seed)
    root = tmp_path_factory.mktemp("backup")
    clock = ManualClock(source.now)
    taken = []
    for point in points_of(source, root, clock):
        backup = open_backup(root)
        taken.append(point)
        answered = {TopicPartition(name, n) for name, t in source.known.items() for n in range(len(t.partitions))} - source.away
        assert len(point.incomplete) == len(source.away)
        check(source, backup, point, answered)
        report = verify_backup(backup.target, threads=1)
        # A point that was killed before its seal gets it from the next start.
        assert [one for one in report.findings if "no seal" not in one.text] == []
    if taken:
        kept = source.rng.choice(taken)
        backup = open_backup(root)
        before = {one: stored_all(backup, one) for one in taken if one.taken_ms >= kept.taken_ms // 1000 * 1000}
        expire(backup, kept.taken_ms // 1000 * 1000, 1 << 62, grace_ms=0)
        again = open_backup(root)
        assert verify_backup(again.target, threads=1).findings == []
        for point, found in before.items():
            assert stored_all(again, point) == found


def stored_all(backup: Backup, point: Point) -> dict[TopicPartition, list[bytes]]:
    return {
        TopicPartition(name, ends.partition): stored(backup, point, TopicPartition(name, ends.partition))
        for name, entry in backup.catalog(point).items()
        for ends in entry.partitions
        if ends.size_bytes
    }
