"""The look through a folder beside a broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import KAFKA_3
from tests.patience import PATIENCE_S
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.hole_search import HoleSearch


@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_is_gone_after_the_end_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture, is_stopped: bool) -> None:
    """A view that is served read-only goes with its broker, while the thread may be within a log."""
    shutil.copytree(KAFKA_3 / "transactions-0", tmp_path / "transactions-0")
    search, look_at = HoleSearch(tmp_path), HoleSearch._look_at

    def late(self: HoleSearch, log_dir: LogDir, topic: str, partition: int) -> None:
        for index in (tmp_path / "transactions-0").glob("*.index"):
            index.unlink()
        if is_stopped:
            self.stop()
        look_at(self, log_dir, topic, partition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HoleSearch, "_look_at", late)
        search.start()
        search._thread.join(PATIENCE_S)
    assert ("is missing; the log is read instead" in caplog.text) is not is_stopped


def test_a_head_that_is_gone_is_told_as_a_hole_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The leader epochs still say where the log began; consumers only see that it begins later."""
    shutil.copytree(KAFKA_3 / "two-partitions-0", tmp_path / "two-partitions-0")
    first, second = sorted((tmp_path / "two-partitions-0").glob("*.log"))
    for path in first.parent.glob(f"{first.stem}.*"):
        path.unlink()
    search = HoleSearch(tmp_path)
    search.start()
    search._thread.join(PATIENCE_S)
    (warned,) = [record.getMessage() for record in caplog.records]
    assert f"two-partitions-0: offsets [0, {int(second.stem)}) missing: leader epoch 0 begins at offset 0" in warned


def test_a_segment_whose_name_does_not_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A start looks at the names of the first and the last only."""
    shutil.copytree(KAFKA_3 / "two-partitions-0", tmp_path / "two-partitions-0")
    _, second = sorted((tmp_path / "two-partitions-0").glob("*.log"))
    second.rename(second.with_name(f"{100:020d}.log"))
    search = HoleSearch(tmp_path)
    search.start()
    search._thread.join(PATIENCE_S)
    assert any("a reader that trusts this file name misses records" in record.getMessage() for record in caplog.records)
