"""The broker's ListOffsets on a folder that it opens: no damage to an index there changes an answer.

The logs, the damage, and what a plain reading gives are those of tests/reader/test_hint_damage.py.
"""

from __future__ import annotations

import random
import shutil
from itertools import islice
from pathlib import Path

import pytest

from tests.examples import IS_SOAK
from tests.reader import hint_damage
from tests.reader.hint_damage import Sample
from tests.reader.test_hint_damage import Lies, plain_finds
from tests.storage.partition_logs import NOW_MS, batch, config
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.model import LATEST, MAX_TIMESTAMP
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment import checked_times

DAMAGES_PER_LOG = 12
LOGS = 400 if IS_SOAK else 12


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def opened(folder: Path, settings: LogConfig) -> PartitionLog:
    """Open a folder as after a clean end: nothing in it is recovered."""
    clock = ManualClock(NOW_MS)
    return load(folder, settings, clock, Scheduler(clock), had_clean_shutdown=True, recovery_point=0, log_start_offset=0)


def check(sample: Sample, rng: random.Random, what: str) -> None:
    folder = sample.data_dir / "copy" / sample.directory.name
    shutil.copytree(sample.directory, folder)
    log = opened(folder, config(segment_bytes=1 << 30))
    try:
        times = rng.sample(sample.times, min(25, len(sample.times)))
        for asked in (times, times[:4]):
            found = [log.fetch_offset_by_timestamp(time) for time in asked]
            answers = [None if one is None else (one.offset, one.timestamp) for one in found]
            assert answers == plain_finds(sample._replace(times=asked)), what
        largest = max(time for _, time in sample.records)
        newest = log.fetch_offset_by_timestamp(MAX_TIMESTAMP)
        plain = next((record for record in sample.records if record[1] == largest and largest >= 0), None)
        assert (None if newest is None else (newest.offset, newest.timestamp)) == plain, what
        latest = log.fetch_offset_by_timestamp(LATEST)
        assert latest is not None
        assert latest.offset == sample.records[-1][0] + 1, what
        # What is appended after entries that were never looked at.
        for time in (sample.times[0], sample.times[-1]):
            log.append_as_leader(batch(timestamp=time), 0)
        found = [log.fetch_offset_by_timestamp(time) for time in times]
        behind = [(latest.offset, sample.times[0]), (latest.offset + 1, sample.times[-1])]
        answers = [None if one is None else (one.offset, one.timestamp) for one in found]
        assert answers == plain_finds(sample._replace(times=times, records=[*sample.records, *behind])), f"{what}, appended to"
    finally:
        log.close()
        shutil.rmtree(folder)


def run(tmp_path: Path, seed: int, lies: Lies) -> None:
    rng = random.Random(seed)
    sample = hint_damage.write_log(tmp_path / str(seed), rng)
    check(sample, rng, "sound")
    for what in islice(lies(sample.directory, rng), DAMAGES_PER_LOG):
        check(sample, rng, f"seed {seed}: {what}")


def test_any_damage_where_the_head_is_read(tmp_path: Path) -> None:
    for seed in range(40_000, 40_000 + LOGS):
        run(tmp_path, seed, hint_damage.any_lies)


def test_a_wrong_entry_where_that_is_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_times, "HEAD_BYTES", 0)
    for seed in range(50_000, 50_000 + LOGS):
        run(tmp_path, seed, hint_damage.single_lies)
