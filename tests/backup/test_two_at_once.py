"""Two backups into one target at the same time: one is refused at any moment, and the backup stays sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backup.model_source import ModelSource
from tidelog.backup.target import FolderTarget
from tidelog.backup.verify import verify_backup
from tidelog.capture.capture import Capture
from tidelog.clock import ManualClock
from tidelog.errors import IllegalStateError


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
