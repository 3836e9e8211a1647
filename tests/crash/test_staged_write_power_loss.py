"""A power failure at any point of a write into many partitions: afterwards all of it is there, sound, or nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.lossy_disk import LossyDisk
from tests.storage.test_staged_write import AFTER, BEFORE, CLOCK, KEYS, folder, recover, times, write
from tidelog.storage.folder.write_journal import COMMITTED_FILE
from tidelog.storage.log_manager import LogManager

SEEDS = 10 if os.environ.get("TIDELOG_SOAK") else 1
CALLS = ("fsync", "rename", "replace", "unlink", "rmdir")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_loss(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    disk = LossyDisk()
    data = tmp_path / "data"
    found: list[Path] = []

    def losing(call: Callable[..., Any]) -> Callable[..., Any]:
        def lose(*arguments: Any, **keywords: Any) -> Any:
            found.append(tmp_path / str(len(found)))
            disk.lose_power(data, found[-1], rng)
            return call(*arguments, **keywords)

        return lose

    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        folder(data)
        with pytest.MonkeyPatch.context() as hooks:
            for name in CALLS:
                hooks.setattr(os, name, losing(getattr(os, name)))
            write(data, [5, 6], "note")
        found.append(tmp_path / "end")
        disk.lose_power(data, found[-1], rng)
        disk.release()
    outcomes = []
    for state in found:
        is_pending = (state / COMMITTED_FILE).exists()
        if is_pending and rng.random() < 0.5:
            with LogManager(state, CLOCK) as manager:
                assert [manager.log(*key).log_end_offset for key in KEYS] == [len(AFTER[key]) for key in KEYS]
        else:
            recover(state)
        outcomes.append(times(state) == AFTER)
        assert outcomes[-1] or (times(state) == BEFORE and not is_pending)
    assert outcomes == sorted(outcomes)
    assert not outcomes[0]
    assert outcomes[-1]
