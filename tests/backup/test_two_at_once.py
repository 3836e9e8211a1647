"""Two backups into one target at the same time: one is refused at any moment, and the backup stays sound."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.backup.model_source import ModelSource
from tidelog.backup.backup import Head, encode_head, open_backup
from tidelog.backup.expire import expire
from tidelog.backup.layout import HEAD
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock
from tidelog.errors import IllegalStateError
from tidelog.formats import checkpoints
from tidelog.formats.large_file import DIRECT_BYTES


@pytest.mark.parametrize("shift_ms", [-5_000, 5_000])
@pytest.mark.parametrize("where", ["cluster_id", "flush", "put"])
def test_one_is_refused(tmp_path: Path, where: str, shift_ms: int) -> None:
    """The other takes its point while this one asks the brokers, before it writes its point, and directly before that."""
    source = ModelSource(1)
    source.is_busy = False
    topic = source.known["a"]
    clock = ManualClock(source.now + 1)  # A name has whole seconds.
    Capture(source, FolderTarget(tmp_path), clock).take()
    target = FolderTarget(tmp_path)
    here, other = Capture(source, target, clock), Capture(source, FolderTarget(tmp_path), clock)
    owner = source if where == "cluster_id" else target
    whole = getattr(owner, where)

    def raced(*arguments: object) -> object:
        if where != "put" or str(arguments[0]).startswith("points/"):
            setattr(owner, where, whole)
            clock.advance(shift_ms)
            source._produce("a", topic, 0, topic.partitions[0])
            other.take()
        return whole(*arguments)

    setattr(owner, where, raced)
    with pytest.raises(IllegalStateError, match="another process has added a point"):
        here.take()
    assert other.take().sequence == 3
    assert verify_backup(FolderTarget(tmp_path)).findings == []


@pytest.mark.parametrize("where", ["cluster_id", "put"])
def test_both_begin_the_backup(tmp_path: Path, where: str) -> None:
    """Each found an empty target, and gave the backup an id. A point with the other id could never be read."""
    source = ModelSource(1)
    source.is_busy = False
    clock, target = ManualClock(source.now), FolderTarget(tmp_path)
    here = Capture(source, target, clock)
    owner = source if where == "cluster_id" else target
    whole = getattr(owner, where)

    def raced(*arguments: object) -> object:
        if where != "put" or str(arguments[0]).startswith("points/"):
            setattr(owner, where, whole)
            target.put(HEAD, encode_head(Head(uuid.uuid4(), clock.now_ms())))
        return whole(*arguments)

    setattr(owner, where, raced)
    with pytest.raises(IllegalStateError, match="another process has created this backup"):
        here.take()
    assert Capture(source, target, clock).take().sequence == 1
    assert verify_backup(FolderTarget(tmp_path)).findings == []


def test_both_write_the_same_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One writes all of it while the other is at its half; then one is killed, and `expire` removes what it has left."""
    source = ModelSource(1)
    Capture(source, FolderTarget(tmp_path), ManualClock(source.now)).take()
    data = bytes(range(256)) * (DIRECT_BYTES // 128)
    whole = checkpoints.write_large

    def raced(path: Path, some: bytes) -> None:
        monkeypatch.setattr(checkpoints, "write_large", whole)
        path.write_bytes(some[: len(some) // 2])
        FolderTarget(tmp_path).put_soon("data/a", data)
        if is_killed:
            raise KeyboardInterrupt
        whole(path, some)

    for is_killed in (False, True):
        monkeypatch.setattr(checkpoints, "write_large", raced)
        try:
            FolderTarget(tmp_path).put_soon("data/a", data)
        except KeyboardInterrupt:
            assert is_killed
        assert (tmp_path / "data/a").read_bytes() == data
    assert len(list(tmp_path.rglob("a*"))) == 2
    for now_ms, count in ((0, 2), (1 << 62, 0)):
        expire(open_backup(tmp_path), 0, now_ms)
        assert len(list(tmp_path.rglob("a*"))) == count
    assert verify_backup(FolderTarget(tmp_path)).findings == []
