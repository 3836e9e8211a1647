"""Remote segments that overlap each other and the local log where their leaders happened to cut: every answer beside
the plain sequence of the log's batches."""

from __future__ import annotations

import logging
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tidelog
from tests.examples import examples
from tests.reader import build
from tests.reader.tiered.tiers import Batch, TierBuilder, segments_of
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP, TopicPartition
from tidelog.records.builder import Producer, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.records import Record, iter_records
from tidelog.sources import read_split
from tidelog.sources.opening import open_source
from tidelog.sources.scan_plan import ScanRequest
from tidelog.sources.split import Split

KEY = TopicPartition("orders", 0)
MAX_TIME = 12
PRODUCERS = 2


class Leader(NamedTuple):
    """A leader's log at its end, where it cut segments, and which of the closed ones it copied."""

    start: int
    """The offset at which its own records begin: the log's end when it was elected."""
    log: list[Batch]
    rolls: list[int]
    copied: list[bool]


class Plan(NamedTuple):
    """Leaders, of which the last one has the log that counts."""

    leaders: list[Leader]
    log_start: int
    first_local: int
    """The number of the last leader's first local segment."""
    interval_bytes: int

    @property
    def log(self) -> list[Batch]:
        return self.leaders[-1].log

    @property
    def segments(self) -> list[tuple[int, int]]:
        return segments_of(self.log, self.leaders[-1].rolls)

    @property
    def local_start(self) -> int:
        return self.log[self.segments[self.first_local][0]].header.base_offset

    @property
    def epochs(self) -> LeaderEpochs:
        """The epochs of the log. A leader notes its own at once, so that it has one even if it writes nothing."""
        found = LeaderEpochs()
        for epoch, leader in enumerate(self.leaders):
            found.truncate_from_end(leader.start)
            found.assign(epoch, leader.start)
        return found

    def records(self) -> list[tuple[Batch, Record]]:
        """All records from the log's start on, control records too."""
        every = ((batch, record) for batch in self.log for record in iter_records(batch.header, batch.data))
        return [(batch, record) for batch, record in every if record.offset >= self.log_start]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    leaders: list[Leader] = []
    log: list[Batch] = []
    for epoch in range(draw(st.integers(1, 4))):
        log = log[: len(log) - draw(st.integers(0, min(3, len(log))))]
        elected = log[-1].header.next_offset if log else 0
        for _ in range(draw(st.integers(0 if log else 1, 8))):
            log = [*log, draw(batches(log, epoch))]
        rolls = draw(st.lists(st.integers(1, max(1, len(log) - 1)), max_size=4, unique=True)) if len(log) > 1 else []
        copied = draw(st.lists(st.booleans(), min_size=len(rolls), max_size=len(rolls)))
        leaders.append(Leader(elected, log, sorted(rolls), copied))
    log_start = draw(st.one_of(st.just(0), st.integers(0, log[-1].header.next_offset)))
    return Plan(leaders, log_start, draw(st.integers(0, len(leaders[-1].rolls))), draw(st.sampled_from([0, 0, 200])))


@st.composite
def batches(draw: st.DrawFn, log: list[Batch], epoch: int) -> Batch:
    """The next batch of a log: of a transaction, plain, or the end of a transaction."""
    offset = log[-1].header.next_offset if log else 0
    producer_id = draw(st.integers(0, PRODUCERS - 1))
    time = draw(st.integers(0, MAX_TIME))
    kind = draw(st.sampled_from(["plain", "plain", "transaction", "end", "end"]))
    if kind == "end" and producer_id in open_transactions(log):
        ended_by = draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
        marker = build_end_txn_marker(offset, time, ended_by, Producer(producer_id, 0, -1), leader_epoch=epoch)
        return Batch.of(bytes(marker))
    options: dict[str, Any] = {}
    if kind == "transaction":
        options = {"producer": Producer(producer_id, 0, offset), "transactional": True}
    times = [time, *draw(st.lists(st.integers(0, MAX_TIME), max_size=2))]
    return Batch.of(build.batch(offset, times, epoch=epoch, value=b"%d of %d" % (offset, epoch), **options))


def open_transactions(log: Sequence[Batch]) -> set[int]:
    found: set[int] = set()
    for header, _ in log:
        if header.is_control:
            found.discard(header.producer_id)
        elif header.is_transactional:
            found.add(header.producer_id)
    return found


def committed(log: Sequence[Batch]) -> set[int]:
    """The offsets that a read_committed consumer sees, from all batches."""
    pending: dict[int, list[Batch]] = {}
    shown: list[Batch] = []
    for batch in log:
        header = batch.header
        if header.is_control:
            (marker,) = iter_records(header, batch.data)
            ended = pending.pop(header.producer_id, [])
            assert marker.key is not None
            if int.from_bytes(marker.key[2:4], "big") == ControlType.COMMIT:
                shown += ended
        elif header.is_transactional:
            pending.setdefault(header.producer_id, []).append(batch)
        else:
            shown.append(batch)
    end = min((batch.header.base_offset for open_ in pending.values() for batch in open_), default=log[-1].header.next_offset)
    return {record.offset for batch in shown for record in iter_records(batch.header, batch.data) if record.offset < end}


def agreed_up_to(plan: Plan, segment: Sequence[Batch]) -> int:
    """The offset up to which a segment has the log's batches, from the log's start on; 0 if it has none of them."""
    end = 0
    of_log = set(plan.log)
    for batch in segment:
        if batch.header.next_offset > plan.log_start:
            if batch not in of_log:
                break
            end = batch.header.next_offset
    return end


@contextmanager
def built(plan: Plan) -> Iterator[tuple[TierBuilder, int]]:
    """Write a plan's files, and yield them with the highest offset in remote storage. What is not local, and what no leader has
    copied, the last leader copies.
    """
    folder = Path(tempfile.mkdtemp())
    try:
        tier = TierBuilder(folder, interval_bytes=plan.interval_bytes)
        remote: set[Batch] = set()
        highest = 0
        for number, (_, log, rolls, copied) in enumerate(plan.leaders):
            leader = tier.leader(log, rolls)
            is_last = number == len(plan.leaders) - 1
            segments = segments_of(log, rolls)
            for index, (start, end) in enumerate(segments[:-1]):
                needed = is_last and index < plan.first_local and not remote.issuperset(log[start:end])
                if copied[index] or needed:
                    tier.copy(leader, log, start, end)
                    up_to = agreed_up_to(plan, log[start:end])
                    remote.update(batch for batch in log[start:end] if batch.header.next_offset <= up_to)
                    highest = max(highest, up_to)
            if is_last:
                tier.finish(leader, plan.epochs, plan.local_start, plan.log_start)
        yield tier, highest - 1
    finally:
        shutil.rmtree(folder)


def rows(tier: TierBuilder, **arguments: Any) -> list[tuple[int, bytes]]:
    found = tidelog.scan(tier.address, "orders", **arguments).read_all().to_pylist()
    return [(row["offset"], row["value"]) for row in found]


@given(plans())
@examples(100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
def test_every_answer_is_that_of_the_batches(plan: Plan) -> None:
    compare(plan)


def test_a_transaction_that_was_aborted_in_a_lost_history() -> None:
    """Its end was truncated, and the next leader has committed it: the remote segment's index still lists the abort."""
    producer = Producer(1, 0, 0)
    begun = Batch.of(build.batch(0, [1], epoch=0, producer=producer, transactional=True))
    after = [Batch.of(build.batch(2, [3], epoch=epoch)) for epoch in (0, 1)]
    ends = [
        Batch.of(bytes(build_end_txn_marker(1, 2, kind, Producer(1, 0, -1), leader_epoch=epoch)))
        for epoch, kind in enumerate((ControlType.ABORT, ControlType.COMMIT))
    ]
    lost = [begun, ends[0], after[0], Batch.of(build.batch(3, [4], epoch=0))]
    leaders = [Leader(0, lost, [3], [True]), Leader(1, [begun, ends[1], after[1]], [1], [False])]
    compare(Plan(leaders, log_start=0, first_local=1, interval_bytes=0))


def compare(plan: Plan) -> None:
    """Compare what is read of a plan's files with its batches."""
    records = plan.records()
    data = [record for batch, record in records if not batch.header.is_control]
    with built(plan) as (tier, highest), heard() as notices:
        if highest < 0:
            return  # No remote segment, so the address may be wrong: an error of its own.
        assert rows(tier) == [(record.offset, record.value) for record in data]
        shown = committed(plan.log)
        assert rows(tier, isolation="read_committed") == [(one.offset, one.value) for one in data if one.offset in shown]
        for start, end in ((0, MAX_TIME // 2), (MAX_TIME // 3, MAX_TIME), (5, 6)):
            assert rows(tier, start=start, end=end) == [
                (one.offset, one.value) for one in data if start <= one.timestamp < end
            ], (start, end)
        with open_source(tier.address) as source:
            for target in range(MAX_TIME + 2):
                first = next(((one.offset, one.timestamp) for _, one in records if one.timestamp >= target), None)
                found = source.find({KEY: target})[KEY]
                assert (None if found is None else (found.offset, found.timestamp)) == first, target
            largest = max((one.timestamp for _, one in records), default=None)
            found = source.find({KEY: MAX_TIMESTAMP})[KEY]
            first = next(((one.offset, one.timestamp) for _, one in records if one.timestamp == largest), None)
            assert (None if found is None else (found.offset, found.timestamp)) == first
            ends = {
                EARLIEST: plan.log_start,
                LATEST: plan.log[-1].header.next_offset,
                EARLIEST_LOCAL: max(plan.local_start, plan.log_start),
                LATEST_TIERED: highest,
            }
            for target, offset in ends.items():
                found = source.find({KEY: target})[KEY]
                assert found is not None and found.offset == offset, target
        assert notices == []


@contextmanager
def heard() -> Iterator[list[str]]:
    """Yield what the package logs meanwhile: nothing here is worth a notice."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, kept = logging.getLogger("tidelog"), Kept()
    logger.addHandler(kept)
    try:
        yield found
    finally:
        logger.removeHandler(kept)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_local_segment_that_moves_to_others_with_other_bounds(is_elsewhere: bool) -> None:
    """Another leader has copied these batches, in segments that it cut elsewhere. Kafka then deletes the local segment."""
    log = [Batch.of(build.batch(number * 2, [number, number + 1], epoch=0, value=b"%d" % number)) for number in range(12)]
    leaders = [Leader(0, log[:11], [2, 5, 6, 10], [True] * 4), Leader(22, log, [4, 9], [False, False])]
    plan = Plan(leaders, log_start=0, first_local=1, interval_bytes=0)
    with built(plan) as (tier, _), heard() as notices:
        names = [(tier.data / "orders-0" / f"{8:020d}").with_suffix(ending) for ending in (".log", ".index", ".timeindex")]
        expected = rows(tier)
        with open_source(tier.address) as source:
            splits = source.plan(ScanRequest(topic="orders")).splits
            folder = source.log_dir
            assert folder is not None
            opened = folder.log("orders", 0)
            (segment,) = (one for one in opened.segments if one.base_offset == 8)
            whole = names[0].read_bytes()
            if is_elsewhere:
                segment = pickle.loads(pickle.dumps(segment))
            for name in names:
                name.unlink()
            assert segment.file.read(0, 1 << 20) == whole
            assert segment.file.read(100, 50) == whole[100:150]
            assert [header.base_offset for header in segment.headers(check_crc=True)] == [8, 10, 12, 14, 16]
            segment.close()
        assert [row for split in splits for row in read(split)] == expected
        assert all("is missing; the log is read instead" in notice for notice in notices)


def read(split: Split) -> list[tuple[int, bytes]]:
    found = [row for batch in read_split(pickle.loads(pickle.dumps(split))) for row in batch.to_pylist()]
    return [(row["offset"], row["value"]) for row in found]
