"""The broker's ListOffsets and Fetch on a folder that it opens: no damage to an index there changes an answer.

The logs, the damage, and what a plain reading gives are those of tests/reader/test_hint_damage.py. Each is asked as on a thread
that may wait, and as on the one that serves clients, where headers that are too many are walked elsewhere first.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

from tests.examples import IS_SOAK
from tests.reader import build, hint_damage
from tests.reader.build import LogBuilder
from tests.reader.hint_damage import Sample
from tests.reader.test_hint_damage import Lies, plain_finds
from tests.storage.partition_logs import NOW_MS, batch, config
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats import names
from tidelog.formats.non_blocking_read import NotCachedError, non_blocking
from tidelog.model import LATEST, MAX_TIMESTAMP
from tidelog.records.batch import BatchHeader
from tidelog.storage.loading.loader import load
from tidelog.storage.partition import offset_lookup
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment import checked_times, walked_headers

T = TypeVar("T")

DAMAGES_PER_LOG = 12
LOGS = 400 if IS_SOAK else 4
LEADING_LOGS = LOGS * (4 if IS_SOAK else 2)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


def opened(folder: Path, settings: LogConfig) -> PartitionLog:
    """Open a folder as after a clean end: nothing in it is recovered."""
    clock = ManualClock(NOW_MS)
    return load(folder, settings, clock, Scheduler(clock), had_clean_shutdown=True, recovery_point=0, log_start_offset=0)


class Asker:
    """Asks a log, as on a thread that serves clients where `is_served`: what is not known there is walked on another one."""

    def __init__(self, *, is_served: bool) -> None:
        self.is_served = is_served
        self.walks = 0

    def __call__(self, question: Callable[[], T]) -> T:
        while self.is_served:
            try:
                with non_blocking():
                    return question()
            except NotCachedError as missing:
                self.walks += missing.is_progress
                missing.prefetch()
        return question()


def found_by(log: PartitionLog, times: list[int], ask: Asker) -> list[tuple[int, int] | None]:
    found = [ask(partial(log.fetch_offset_by_timestamp, time)) for time in times]
    return [None if one is None else (one.offset, one.timestamp) for one in found]


def check(sample: Sample, rng: random.Random, what: str, ask: Asker) -> None:
    folder = sample.data_dir / "copy" / sample.directory.name
    shutil.copytree(sample.directory, folder)
    batches = [(one, path) for path in hint_damage.logs_of(folder) for one in hint_damage.headers_of(path)]
    log = opened(folder, config(segment_bytes=1 << 30))
    try:
        check_fetches(log, batches, rng, what, ask)
        times = rng.sample(sample.times, min(25, len(sample.times)))
        for asked in (times, times[:4]):
            assert found_by(log, asked, ask) == plain_finds(sample._replace(times=asked)), what
        largest = max(time for _, time in sample.records)
        newest = ask(lambda: log.fetch_offset_by_timestamp(MAX_TIMESTAMP))
        plain = next((record for record in sample.records if record[1] == largest and largest >= 0), None)
        assert (None if newest is None else (newest.offset, newest.timestamp)) == plain, what
        latest = log.fetch_offset_by_timestamp(LATEST)
        assert latest is not None
        assert latest.offset == sample.records[-1][0] + 1, what
        check_fetches(log, batches, rng, what, ask)
        # What is appended after entries that were never looked at.
        for time in (sample.times[0], sample.times[-1]):
            log.append_as_leader(batch(timestamp=time), 0)
        behind = [(latest.offset, sample.times[0]), (latest.offset + 1, sample.times[-1])]
        plainly = plain_finds(sample._replace(times=times, records=[*sample.records, *behind]))
        assert found_by(log, times, ask) == plainly, f"{what}, appended to"
    finally:
        log.close()
        shutil.rmtree(folder)


def check_fetches(log: PartitionLog, batches: list[tuple[BatchHeader, Path]], rng: random.Random, what: str, ask: Asker) -> None:
    """Fetch some offsets, of records and of gaps: what comes begins with the first batch that ends at or after it."""
    for _ in range(6):
        offset = rng.randrange(batches[0][0].base_offset, batches[-1][0].next_offset)
        header, path = next(one for one in batches if one[0].last_offset >= offset)
        if header.magic < 2:
            continue  # A message set may be read from a message before it.
        found = ask(lambda: log.locate(offset, 1, FetchIsolation.LOG_END, True))  # noqa: B023
        assert found.log is not None
        assert (found.log.path.name, found.position) == (path.name, header.position), f"{what}: offset {offset}"


def run(tmp_path: Path, seed: int, lies: Lies, ask: Asker) -> None:
    rng = random.Random(seed)
    sample = hint_damage.write_log(tmp_path / str(seed), rng)
    check(sample, rng, "sound", ask)
    for what in islice(lies(sample.directory, rng), DAMAGES_PER_LOG):
        check(sample, rng, f"seed {seed}: {what}", ask)


@pytest.fixture(params=[False, True], ids=["waiting", "serving"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    """Have few batches be far, so that a small log takes all the ways of a large one."""
    monkeypatch.setattr(walked_headers, "POINT_BATCHES", 3)
    monkeypatch.setattr(walked_headers, "POINT_BYTES", 300)
    monkeypatch.setattr(walked_headers, "_FEW", 0)
    asker = Asker(is_served=request.param)
    yield asker
    assert (asker.walks > 0) == asker.is_served


def test_any_damage(tmp_path: Path, ask: Asker) -> None:
    for seed in range(40_000, 40_000 + LOGS):
        run(tmp_path, seed, hint_damage.any_lies, ask)


def test_an_entry_that_leads_into_a_value(tmp_path: Path, ask: Asker) -> None:
    for seed in range(60_000, 60_000 + LEADING_LOGS):
        run(tmp_path, seed, hint_damage.nested_lies, ask)


def test_a_wrong_entry_where_all_headers_are_too_many(tmp_path: Path, ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_times, "MAX_BYTES", 0)
    for seed in range(50_000, 50_000 + LOGS):
        run(tmp_path, seed, hint_damage.single_lies, ask)


def test_two_neighbours_that_lie_far_apart(tmp_path: Path) -> None:
    """Each entry agrees with its batch and with the other; a batch before both is later. Sizes are those of a real log."""
    builder = LogBuilder(tmp_path / "far-0", interval_bytes=4096)
    late, count = 3, 400
    for number in range(count):
        time = hint_damage.FIRST_MS + (10_000_000 if number == late else number * 1000)
        builder.append(build.batch(builder.next_offset, [time], value=bytes(16_000)))
    builder.close()
    (log_path,) = hint_damage.logs_of(builder.directory)
    headers = hint_damage.headers_of(log_path)
    liars = [headers[150], headers[350]]
    assert liars[1].position - liars[0].position > 2 * walked_headers.POINT_BYTES
    entries = [hint_damage.TIME_ENTRY.pack(one.max_timestamp, one.last_offset) for one in liars]
    log_path.with_suffix(names.TIME_INDEX_SUFFIX).write_bytes(b"".join(entries))
    log = opened(builder.directory, config(segment_bytes=1 << 30))
    try:
        asker = Asker(is_served=True)
        wanted = [one.max_timestamp + 1 for one in liars] + [hint_damage.FIRST_MS + 9_000_000]
        assert found_by(log, wanted, asker) == [(late, hint_damage.FIRST_MS + 10_000_000)] * 3
        assert asker.walks
    finally:
        log.close()


def test_an_index_of_many_segments_is_checked_a_few_at_once(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "many-0")
    for number in range(40):
        builder.append(build.batch(builder.next_offset, [hint_damage.FIRST_MS + number]))
        builder.roll()
    builder.close()
    log = opened(builder.directory, config())
    try:
        asker = Asker(is_served=True)
        assert found_by(log, [hint_damage.FIRST_MS + 39], asker) == [(39, hint_damage.FIRST_MS + 39)]
        assert asker.walks >= 40 // (offset_lookup.CHECKED_AT_ONCE + 1) - 1
        assert not any(segment.log.is_open for segment in log.segments.values()[:-1][:-1])
    finally:
        log.close()
