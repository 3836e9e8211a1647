"""A point read as a folder answers as the same files in a folder; its indexes are right; splits of it go to other processes."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.backup.model_source import NOON, ModelSource
from tests.examples import examples
from tidelog.backup import backup_path
from tidelog.backup.backup import open_backup
from tidelog.backup.opening import folder_at
from tidelog.backup.target import FolderTarget
from tidelog.capture import joining, piece_builder
from tidelog.capture.capture import Capture
from tidelog.check.folder_indexes import VerifyOptions
from tidelog.check.folder_verify import verify_folder
from tidelog.check.segment_facts import facts_of
from tidelog.clock import ManualClock
from tidelog.formats.files import read_whole
from tidelog.formats.paths.file_path import FilePath
from tidelog.formats.time_map_builder import TimeMapBuilder, add_batches
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.sources.opening import open_source


def written(folder: FilePath, to: Path) -> Path:
    """Write all files of a folder into one of this machine."""
    to.mkdir()
    for path in folder.iterdir():
        if path.is_dir():
            written(path, to / path.name)
        else:
            (to / path.name).write_bytes(read_whole(path))
            assert path.stat().st_size == (to / path.name).stat().st_size
    return to


@pytest.fixture(scope="module", autouse=True)
def _small_pieces() -> object:
    """Pieces that small have indexes, and are joined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece_builder, "INDEXED_BYTES", 400)
        patch.setattr(piece_builder, "INDEX_INTERVAL_BYTES", 200)
        patch.setattr(backup_path, "INDEX_INTERVAL_BYTES", 200)
        patch.setattr(joining, "_RULES", ((300, 3), (1200, 4)))
        yield


@examples(6)
@given(st.integers(0, 2**32))
def test_a_point_answers_as_a_folder(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    root = tmp_path_factory.mktemp("backup")
    source = ModelSource(seed)
    source.allows_truncation = False
    clock = ManualClock(source.now)
    capture = Capture(source, FolderTarget(root / "b"), clock)
    for _ in range(9):
        for _ in range(20):
            source.tick()
        clock.advance(source.now - clock.now_ms())
        capture.take()
    point = folder_at(f"backup:{root / 'b'}")
    folder = written(point, root / "folder")
    report = verify_folder(point, (), VerifyOptions(threads=1))
    assert [str(one) for one in report.all_findings() if one.is_fault or "index" in one.path.name] == []
    with open_source(str(root / "b")) as backup, open_source(folder) as plain:
        keys = [TopicPartition(topic, number) for topic, numbers in plain.topics().items() for number in numbers]
        assert backup.topics() == plain.topics()
        assert backup.ends(keys) == plain.ends(keys)
        assert backup.topic_ids(keys) == plain.topic_ids(keys)
        assert backup.cluster_id() == plain.cluster_id() == "model"
        for time in range(NOON, source.now + 500, max(1, (source.now - NOON) // 5)):
            targets = dict.fromkeys(keys, time)
            for isolation in ("read_uncommitted", "read_committed"):
                assert backup.find(targets, isolation) == plain.find(targets, isolation)  # type: ignore[arg-type]
    for key in keys:
        name = f"{key.topic}-{key.partition}"
        told = (point / name).segment_facts()  # type: ignore[attr-defined]
        with Log.open(folder / name) as log:
            for segment in log.segments:
                builder = TimeMapBuilder(segment.base_offset)
                add_batches(builder, segment.file, segment.size_bytes)
                true = facts_of(segment, builder.build())
                assert true is not None
                if segment.size_bytes:  # What the manifests do not have is -1.
                    facts = told[segment.base_offset]
                    assert facts[:6] == true[:6]
    for topic in {key.topic for key in keys}:
        for isolation in ("read_uncommitted", "read_committed"):
            columns = ["partition", "offset", "timestamp", "value"]
            found = tidelog.scan(str(root / "b"), topic, columns=columns, isolation=isolation).read_all()  # type: ignore[arg-type]
            assert found == tidelog.scan(folder, topic, columns=columns, isolation=isolation).read_all()  # type: ignore[arg-type]


def test_a_path_goes_to_another_process(tmp_path: Path) -> None:
    """It then knows its content: nothing but the objects themselves is read there."""
    source = ModelSource(1)
    for _ in range(200):
        source.tick()
    Capture(source, FolderTarget(tmp_path / "b"), ManualClock(source.now)).take()
    folder = folder_at(tmp_path / "b")
    for path in (file for part in folder.iterdir() if part.is_dir() for file in part.iterdir()):
        before = read_whole(path)
        sent = pickle.dumps(path)
        hidden = (tmp_path / "b" / "points").rename(tmp_path / "points")
        again: FilePath = pickle.loads(sent)
        assert (read_whole(again), again.name, str(again)) == (before, path.name, str(path))
        hidden.rename(tmp_path / "b" / "points")


def test_damaged_indexes_of_a_backup_are_found(tmp_path: Path) -> None:
    """Each bit and each missing entry of the stored indexes, although the indexes of pieces have their own rule."""
    source = ModelSource(1)
    source.is_busy = False
    topic = source.known["a"]
    topic.settings["segment.bytes"] = "100000"
    clock = ManualClock(source.now)
    capture = Capture(source, FolderTarget(tmp_path / "b"), clock)
    for count in (2, 40, 3, 2, 40, 1):
        for _ in range(count):
            source.now += 400
            source._produce("a", topic, 0, topic.partitions[0])
        clock.advance(source.now - clock.now_ms())
        capture.take()
    point = f"backup:{tmp_path / 'b'}"

    def found() -> list[str]:
        report = verify_folder(folder_at(point), ("a",), VerifyOptions(threads=1))
        return [str(one) for one in report.all_findings() if "index" in str(one)]

    assert found() == []
    backup = open_backup(tmp_path / "b")
    partition = backup.partition(backup.topics(backup.point())["a"], 0)
    pieces = [piece for segment in backup.segments(partition) for piece in segment.pieces]
    assert {".index" in piece.files for piece in pieces} == {True, False}
    kinds = (".index", ".timeindex")
    victims = [tmp_path / "b" / backup.key(partition, one, kind) for one in pieces for kind in kinds if kind in one.files]
    random = Random(3)
    for victim in victims:
        before = victim.read_bytes()
        if not before:  # The largest timestamp did not rise.
            continue
        for _ in range(20):
            after = bytearray(before)
            after[random.randrange(len(after))] ^= 1 << random.randrange(8)
            victim.write_bytes(after)
            assert found(), victim.name
        entry = 8 if victim.suffix == ".index" else 12
        repeated = before[:entry] + before[:-entry]  # The last entry is missing.
        victim.write_bytes(repeated)
        assert found() or repeated == before, victim.name
        victim.write_bytes(before)
    assert found() == []
