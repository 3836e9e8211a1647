"""A power failure before any file operation on the metadata log, snapshots among them: what was committed is there, and whole.

`TIDELOG_SOAK=1` does many.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.lossy_disk import LossyDisk
from tests.storage.crash_states import CrashStates
from tests.storage.test_metadata_store import config, opened, setting
from tidelog.metadata.records import TOPIC_RESOURCE, ConfigRecord
from tidelog.reader.metadata_log import METADATA_DIR, list_segments, list_snapshots
from tidelog.storage.metadata import metadata_store

SEEDS = range(300 if os.environ.get("TIDELOG_SOAK") else 3)
CHANGES = 25


class PowerLosses(CrashStates):
    """States that a power failure leaves, with what had been committed, and what was being committed."""

    def __init__(self, folder: Path, into: Path, disk: LossyDisk, rng: random.Random) -> None:
        super().__init__(folder, into)
        self.disk = disk
        self.rng = rng
        self.committed = self.attempted = 0
        self.found: list[tuple[Path, int, int]] = []

    def _copy(self, call: str, *, always: bool = False) -> Path:
        self._copying = True
        try:
            state = self.into / str(len(self.found)) / self.folder.name
            self.disk.lose_power(self.folder, state, self.rng)
            self.found.append((state, self.committed, self.attempted))
            return state
        finally:
            self._copying = False

    def _write_half(self, name: str, arguments: tuple[object, ...]) -> None:
        """What is not synced is cut anyway."""


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(metadata_store, "SNAPSHOT_BYTES", 600)
    monkeypatch.setattr(metadata_store, "MAX_BATCH_RECORDS", 5)
    rng = random.Random(seed)
    disk = LossyDisk()
    disk.install(monkeypatch)
    try:
        store = opened(tmp_path / "data")
        store.commit([setting(0)])
        with PowerLosses(tmp_path / "data", tmp_path / "states", disk, rng) as losses:
            for number in range(1, CHANGES):
                losses.attempted = number
                others: list[ConfigRecord] = [setting(number, f"y{i}") for i in range(rng.choice([0, 0, 1, 9]))]
                store.commit([*others, ConfigRecord(TOPIC_RESOURCE, "t", "x", str(number))])
                losses.committed = number
                if store.is_snapshot_due:
                    store.take_snapshot()
                if rng.random() < 0.1:
                    store = opened(tmp_path / "data")
    finally:
        disk.release()
    assert len(list_snapshots(tmp_path / "data" / METADATA_DIR)) == 1
    monkeypatch.undo()
    for state, committed, attempted in losses.found[:: 1 if len(SEEDS) > 3 else 3]:
        assert committed <= int(config(state)["x"]) <= attempted, state
        again = opened(state)
        again.commit([setting("end")])
        assert config(state)["x"] == "end"
        again.take_snapshot()
        folder = state / METADATA_DIR
        left = {path.name for path in folder.iterdir()} - {"quorum-state"}
        assert left == {list_segments(folder)[0].name, list_snapshots(folder)[0].path.name}, state
        assert config(state)["x"] == "end"
