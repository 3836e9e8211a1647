"""The storage engine against a model: random appends, rolls, truncations, retention, compaction and restarts, in any order.

The model is a dict of records by offset and a list of batches. After each step the log holds exactly those records, the engine
and the reading side find the times that a search through all records finds, and transactions are as the batches say.
`make soak` runs many more examples (TIDELOG_SOAK=1).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.storage.compacting import make_cleaner, to_clean
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import OutOfOrderSequenceError
from tidelog.reader.log import Log
from tidelog.reader.time_search import find_offset
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record, iter_records
from tidelog.records.validation import AppendOrigin
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.scheduler import Scheduler

START_MS = 1_700_000_000_000
IDEMPOTENT, TRANSACTIONAL = (11, 12), (21, 22)
CONFIG = LogConfig(
    segment_bytes=700, segment_ms=50_000, index_interval_bytes=100, segment_index_bytes=240, retention_ms=30_000,
    cleanup_policy="compact,delete", file_delete_delay_ms=1000, delete_retention_ms=5000,
)  # fmt: skip

RECORDS = st.lists(st.tuples(st.integers(-20_000, 20_000), st.integers(0, 5), st.booleans()), min_size=1, max_size=4)
CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])


@dataclass(frozen=True)
class Batch:
    """What the model keeps of a batch."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    base_sequence: int = -1
    marker: ControlType | None = None
    is_transactional: bool = False


class EngineModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tidelog-model-"))
        self.folder = self.root / "t-0"
        self.folder.mkdir()
        self.clock = ManualClock(START_MS)
        self.records: dict[int, tuple[int, bytes | None, bytes | None]] = {}
        self.batches: list[Batch] = []
        self.log_start_offset = self.log_end_offset = 0
        self.recovery_point = 0
        self.compacted_to = 0
        self.epoch = 0
        self.written = 0

    @initialize()
    def begin(self) -> None:
        self.open(had_clean_shutdown=True)

    def teardown(self) -> None:
        self.log.close_handlers()
        shutil.rmtree(self.root)

    def open(self, *, had_clean_shutdown: bool) -> None:
        self.scheduler = Scheduler(self.clock)
        self.log = load(
            self.folder,
            CONFIG,
            self.clock,
            self.scheduler,
            had_clean_shutdown=had_clean_shutdown,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
        )
        # Offsets after the last record, cut off from within a batch, leave no trace in the files.
        assert max(self.records, default=-1) < self.log.log_end_offset <= max(self.log_end_offset, 0)
        self.log_end_offset = self.log.log_end_offset
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.log.update_high_watermark(self.log.log_end_offset)

    # --- appends

    def data(self, records: list[tuple[int, int, bool]], first_offset: int) -> list[Record]:
        made = []
        for i, (delta_ms, key, is_tombstone) in enumerate(records):
            self.written += 1
            value = None if is_tombstone else b"%d" % self.written + b"." * (self.written % 40)
            made.append(Record(first_offset + i, self.clock.now_ms() + delta_ms, 0, b"key%d" % key, value))
        return made

    def note(self, records: list[Record], base_offset: int, batch: Batch) -> None:
        for i, record in enumerate(records):
            self.records[base_offset + i] = (record.timestamp, record.key, record.value)
        self.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule(records=RECORDS, codec=CODECS)
    def append_as_leader(self, records: list[tuple[int, int, bool]], codec: Codec) -> None:
        made = self.data(records, 0)
        info = self.log.append_as_leader(build_batch_v2(made, codec=codec), self.epoch)
        assert (info.first_offset, info.last_offset) == (self.log_end_offset, self.log_end_offset + len(made) - 1)
        self.note(made, info.first_offset, Batch(info.first_offset, info.last_offset))

    @rule(records=RECORDS, gap=st.integers(0, 3), new_epoch=st.booleans())
    def append_as_follower(self, records: list[tuple[int, int, bool]], gap: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        base = self.log_end_offset + gap
        made = self.data(records, base)
        self.log.append_as_follower(build_batch_v2(made, leader_epoch=self.epoch))
        self.note(made, base, Batch(base, base + len(made) - 1))

    @rule(records=RECORDS, producer_id=st.sampled_from(IDEMPOTENT + TRANSACTIONAL), codec=CODECS)
    def append_of_a_producer(self, records: list[tuple[int, int, bool]], producer_id: int, codec: Codec) -> None:
        made = self.data(records, 0)
        transactional = producer_id in TRANSACTIONAL
        sequence = self.next_sequence(producer_id)
        built = build_batch_v2(made, codec=codec, producer=Producer(producer_id, 0, sequence), is_transactional=transactional)
        info = self.log.append_as_leader(bytes(built), self.epoch)
        assert not info.is_duplicate
        assert info.first_offset == self.log_end_offset
        batch = Batch(info.first_offset, info.last_offset, producer_id, sequence, is_transactional=transactional)
        self.note(made, info.first_offset, batch)
        again = self.log.append_as_leader(bytes(built), self.epoch)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (info.first_offset, info.last_offset)

    @rule(records=RECORDS, producer_id=st.sampled_from(IDEMPOTENT))
    def append_out_of_order(self, records: list[tuple[int, int, bool]], producer_id: int) -> None:
        if self.log.producer_state.last_entry(producer_id) is None:
            return
        producer = Producer(producer_id, 0, self.next_sequence(producer_id) + 7)
        with pytest.raises(OutOfOrderSequenceError):
            self.log.append_as_leader(build_batch_v2(self.data(records, 0), producer=producer), self.epoch)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        if producer_id not in self.open_transactions():
            return
        marker = build_end_txn_marker(0, self.clock.now_ms(), kind, Producer(producer_id, 0, -1))
        info = self.log.append_as_leader(marker, self.epoch, origin=AppendOrigin.COORDINATOR)
        record = Record(info.first_offset, self.clock.now_ms(), 0, b"control", b"control")
        batch = Batch(info.first_offset, info.last_offset, producer_id, marker=kind, is_transactional=True)
        self.note([record], info.first_offset, batch)

    def next_sequence(self, producer_id: int) -> int:
        entry = self.log.producer_state.last_entry(producer_id)
        return 0 if entry is None else entry.last_sequence + 1

    # --- what time and people do

    @rule(milliseconds=st.sampled_from([1, 500, 2000, 20_000, 70_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.scheduler.tick()

    @rule()
    def roll(self) -> None:
        if self.log.segments.active.size_bytes:
            self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.recovery_point = self.log.recovery_point
        assert self.recovery_point == self.log_end_offset

    @precondition(lambda self: self.log_end_offset > self.log_start_offset)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        # What was compacted, and the markers that said how, was below the high watermark: no leader takes that back.
        lowest = max(self.log_start_offset, min(self.compacted_to, self.log_end_offset))
        target = lowest + int(share * (self.log_end_offset - lowest))
        assert self.log.truncate_to(target) == (target < self.log_end_offset)
        if target < self.log_end_offset:
            gone = [batch for batch in self.batches if batch.last_offset >= target]
            self.batches = [batch for batch in self.batches if batch.last_offset < target]
            for offset in [o for o in self.records if any(b.base_offset <= o <= b.last_offset for b in gone) or o >= target]:
                del self.records[offset]
            self.log_end_offset = target
            self.recovery_point = min(self.recovery_point, target)

    @precondition(lambda self: self.log_end_offset > self.log_start_offset)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.log_start_offset + int(share * (self.log_end_offset - self.log_start_offset))
        assert self.log.delete_records(offset) == offset
        self.forget_below(offset)

    @rule()
    def retention(self) -> None:
        self.log.delete_old_segments()
        start = self.log.log_start_offset
        oldest_kept = self.clock.now_ms() - CONFIG.retention_ms
        assert all(timestamp < oldest_kept for offset, (timestamp, _, _) in self.records.items() if offset < start)
        first, rest = self.log.segments.values()[0], self.log.segments.values()[1:]
        inside = [t for o, (t, _, _) in self.records.items() if o >= start and (not rest or o < rest[0].base_offset)]
        if first.size_bytes and inside and self.log.segments.values()[0].base_offset == start:
            assert max(inside) >= oldest_kept
        self.forget_below(start)

    def forget_below(self, offset: int) -> None:
        self.log_start_offset = offset
        for gone in [o for o in self.records if o < offset]:
            del self.records[gone]

    @rule()
    def compact(self) -> None:
        cleanable = to_clean(
            self.log, self.log_start_offset, min(self.log.segments.active.base_offset, self.log.last_stable_offset)
        )
        if cleanable.first_uncleanable_offset <= self.log_start_offset:
            return
        make_cleaner(clock=self.clock).clean(cleanable)
        end, self.compacted_to = cleanable.first_uncleanable_offset, self.log.last_stable_offset
        aborted = self.aborted_offsets()
        latest = {r[1]: o for o, r in sorted(self.records.items()) if o < end and o not in aborted and r[1] != b"control"}
        found = self.read_all()
        for offset in [o for o in self.records if o < end and o not in found]:
            _, key, value = self.records.pop(offset)
            assert key == b"control" or offset in aborted or latest[key] != offset or value is None
        there = set(found)
        open_since = self.open_transactions()
        self.batches = [
            b
            for b in self.batches
            if b.last_offset >= end
            or any(b.base_offset <= o <= b.last_offset for o in there)
            # A transaction that began below the log start is open all the same, and a recovery may meet its batches again.
            or b.base_offset >= open_since.get(b.producer_id, b.base_offset + 1)
        ]

    # --- restarts

    @rule()
    def restart(self) -> None:
        self.log.flush(force_active=True)
        self.log.close()
        self.recovery_point = self.log.recovery_point
        self.open(had_clean_shutdown=True)

    @rule(with_indexes=st.booleans())
    def crash(self, with_indexes: bool) -> None:
        self.log.close_handlers()
        if not with_indexes:
            for path in self.folder.glob("*index"):
                path.unlink()
        self.open(had_clean_shutdown=False)

    # --- what must be true

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.log_start_offset, self.log_end_offset)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset

    @invariant()
    def records_agree(self) -> None:
        assert self.read_all() == self.records

    def read_all(self) -> dict[int, tuple[int, bytes | None, bytes | None]]:
        found = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 500, min_one_message=True).data
            headers = list(iter_headers(data))
            if not headers:
                break
            for header in headers:
                for record in iter_records(header, data[header.position : header.end_position]):
                    if record.offset >= self.log.log_start_offset:
                        control = header.is_control
                        key, value = (b"control", b"control") if control else (record.key, record.value)
                        found[record.offset] = (record.timestamp, key, value)
            offset = headers[-1].last_offset + 1
        return found

    @invariant()
    def times_are_found(self) -> None:
        times = sorted({record[0] for record in self.records.values()})
        if not times:
            return
        with Log.open(self.folder, log_start_offset=self.log_start_offset) as reading:
            for target in {times[0], times[len(times) // 2], times[-1], times[-1] + 1, times[0] + 1}:
                truth = next(((r[0], o) for o, r in sorted(self.records.items()) if r[0] >= target), None)
                found = find_offset(reading, target)
                assert (None if found is None else (found.timestamp, found.offset)) == truth
                answer = self.log.fetch_offset_by_timestamp(target)
                # Kafka picks one segment and says "none" where that one has no match at or above the log start.
                assert answer is None or (answer.timestamp, answer.offset) == truth
                if answer is None and truth is not None:
                    assert self.hides_matches(target)

    def hides_matches(self, target: int) -> bool:
        segments = self.log.segments.values()
        chosen = next(segment for segment in segments if segment.largest_timestamp >= target)
        higher = self.log.segments.higher(chosen.base_offset)
        end = self.log_end_offset if higher is None else higher.base_offset
        return not any(o < end and o >= chosen.base_offset and r[0] >= target for o, r in self.records.items())

    @invariant()
    def transactions_agree(self) -> None:
        firsts = [first for first in self.open_transactions().values() if first >= self.log_start_offset]
        if len(firsts) == len(self.open_transactions()):
            assert self.log.last_stable_offset == min(firsts, default=self.log_end_offset)
        data = self.log.read(self.log_start_offset, 10**6, FetchIsolation.TXN_COMMITTED).aborted_transactions
        known = {(txn.producer_id, txn.last_offset) for txn in data or []}
        for batch in self.batches:
            if batch.marker is ControlType.ABORT and batch.last_offset < self.log.last_stable_offset:
                told = any(
                    b.producer_id == batch.producer_id and b.marker is None and b.is_transactional for b in self.before(batch)
                )
                assert not told or (batch.producer_id, batch.last_offset) in known or self.is_in_an_earlier_read(batch)

    def is_in_an_earlier_read(self, batch: Batch) -> bool:
        """A read covers one segment's part; the transaction may lie after it."""
        higher = self.log.segments.higher(self.log.segments.values()[0].base_offset)
        return higher is not None

    def before(self, marker: Batch) -> list[Batch]:
        """The batches of the transaction that a marker ends, as far as the log still has them."""
        of_producer = [b for b in self.batches if b.producer_id == marker.producer_id and b.last_offset < marker.base_offset]
        since = max((b.last_offset for b in of_producer if b.marker is not None), default=-1)
        return [b for b in of_producer if b.base_offset > since and b.last_offset >= self.log_start_offset]

    def open_transactions(self) -> dict[int, int]:
        firsts: dict[int, int] = {}
        for batch in self.batches:
            if batch.marker is not None:
                firsts.pop(batch.producer_id, None)
            elif batch.is_transactional:
                firsts.setdefault(batch.producer_id, batch.base_offset)
        return firsts

    def aborted_offsets(self) -> set[int]:
        return {
            offset
            for marker in self.batches
            if marker.marker is ControlType.ABORT
            for batch in self.before(marker)
            for offset in range(batch.base_offset, batch.last_offset + 1)
        }


TestEngineModel = EngineModel.TestCase
TestEngineModel.settings = settings(
    max_examples=2000 if os.environ.get("TIDELOG_SOAK") else 40,
    stateful_step_count=50 if os.environ.get("TIDELOG_SOAK") else 30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
