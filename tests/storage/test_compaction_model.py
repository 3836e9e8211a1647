"""Property: whatever is appended, rolled and compacted, a compacted log says the same about every key as a dict does."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.compacting import abort, all_records, commit, compacted_log, read_committed
from tests.storage.partition_logs import NOW_MS
from tidelog.clock import ManualClock
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.compaction.cleaner_manager import CleanerManager
from tidelog.storage.compaction.log_cleaner import LogCleaner
from tidelog.storage.partition.partition_log import PartitionLog

RETENTION_MS = 1000

keys = st.integers(0, 6)
values = st.none() | st.integers(0, 99)
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4])
transactional = st.sampled_from([2, 3])
operations = st.one_of(
    st.tuples(st.just("append"), pairs, st.sampled_from([0, 0, 1, 2, 3]), codecs),
    st.tuples(st.just("transaction"), pairs, transactional, codecs, st.booleans()),
    st.tuples(st.just("transaction"), pairs, transactional, codecs, st.booleans()),
    st.tuples(st.just("end"), transactional, st.booleans()),
    st.tuples(st.just("compact"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS])),
    st.tuples(st.just("reopen"), st.booleans()),
)


class Model:
    """What was appended, by offset, and which of it was committed."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.undecided: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.sequences = dict.fromkeys((1, 2, 3), 0)

    def table(self, end_offset: int) -> dict[bytes | None, Record]:
        """Of each key the latest committed record below `end_offset`, tombstones left out."""
        found = {
            record.key: record
            for offset, record in sorted(self.records.items())
            if offset < end_offset and offset not in self.aborted
        }
        return {key: record for key, record in found.items() if record.value is not None}


class World:
    def __init__(self, directory: Path, slots: int) -> None:
        self.directory = directory
        self.clock = ManualClock(NOW_MS)
        self.slots = slots
        self.log = self.open(clean=True)
        self.model = Model()

    def open(self, *, clean: bool) -> PartitionLog:
        log = compacted_log(
            self.directory,
            self.clock,
            clean=clean,
            segment_bytes=700,
            index_interval_bytes=150,
            delete_retention_ms=RETENTION_MS,
            min_cleanable_dirty_ratio="0.0",
        )
        self.manager = CleanerManager(self.directory, {log.topic_partition: log}, self.clock)
        cleaner = Cleaner(self.clock, memory_bytes=24 * self.slots, io_buffer_bytes=300)
        self.cleaner = LogCleaner(self.manager, cleaner)
        return log

    def append(self, pairs: list[tuple[int, int | None]], producer_id: int, codec: Codec) -> None:
        log, model = self.log, self.model
        records = [
            Record(i, self.clock.now_ms() - i, CREATE_TIME, b"%d" % key, None if value is None else b"%d" % value * 9)
            for i, (key, value) in enumerate(pairs)
        ]
        producer = Producer(producer_id, 0, model.sequences[producer_id]) if producer_id else NO_PRODUCER
        if producer_id:
            model.sequences[producer_id] += len(records)
        is_transactional = producer_id > 1
        data = build_batch_v2(records, codec=codec, producer=producer, is_transactional=is_transactional)
        first = log.append_as_leader(data, 0).first_offset
        placed = {first + i: record._replace(offset=first + i) for i, record in enumerate(records)}
        model.records |= placed
        if is_transactional:
            model.undecided.setdefault(producer_id, []).extend(placed)

    def end(self, producer_id: int, is_aborted: bool) -> None:
        offsets = self.model.undecided.pop(producer_id, None)
        if offsets is not None:
            (abort if is_aborted else commit)(self.log, producer_id)
            if is_aborted:
                self.model.aborted.update(offsets)

    def reopen(self, clean: bool) -> None:
        """Close and open; if it is not clean, what is known of producers comes from the batches alone."""
        self.log.flush()
        self.log.close()
        if not clean:
            for path in self.log.directory.glob("*.snapshot"):
                path.unlink()
        self.log = self.open(clean=clean)
        producers = self.log.producer_state.active_producers
        for producer_id, sequence in self.model.sequences.items():
            if sequence > 0:
                assert producers[producer_id].last_sequence == sequence - 1

    def compact(self, slices: int) -> None:
        """A pass in slices, with an append between any two of them."""
        for _ in range(200):
            if not self.cleaner.work(400 * slices):
                return
            if slices == 1:
                self.append([(6, 1)], 0, Codec.NONE)
                self.settle()

    def settle(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)

    def check(self) -> None:
        log, model = self.log, self.model
        found = all_records(log)
        assert all(model.records[record.offset] == record for record in found)
        offsets = [record.offset for record in found]
        assert offsets == sorted(offsets)
        stable = log.last_stable_offset
        assert stable == min((offsets[0] for offsets in model.undecided.values()), default=log.log_end_offset)
        visible = read_committed(log, 500)
        assert not {record.offset for record in visible} & model.aborted
        latest = {record.key: record for record in visible if record.offset < stable}
        assert {key: record for key, record in latest.items() if record.value is not None} == model.table(stable)
        checkpoint = self.manager.checkpoints.get(log.topic_partition, 0)
        below = [record.key for record in found if record.offset < checkpoint]
        assert len(below) == len(set(below)), "one record a key below the cleaner's checkpoint"
        above = [offset for offset in model.records if offset >= max(checkpoint, log.segments.active.base_offset)]
        assert [offset for offset in offsets if offset >= max(checkpoint, log.segments.active.base_offset)] == above


@contextmanager
def world(slots: int) -> Iterator[World]:
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield World(directory, slots)
    finally:
        shutil.rmtree(directory)


@examples(80)
@given(steps=st.lists(operations, min_size=5, max_size=40), slots=st.sampled_from([3, 5, 100]))
def test_like_a_dict(steps: list[tuple], slots: int) -> None:
    with world(slots) as one:
        for step in steps:
            match step:
                case ("append", pairs, producer_id, codec):
                    one.append(pairs, producer_id, codec)
                case ("end", producer_id, is_aborted):
                    one.end(producer_id, is_aborted)
                case ("transaction", pairs, producer_id, codec, is_aborted):
                    one.append(pairs, producer_id, codec)
                    one.end(producer_id, is_aborted)
                case ("compact", slices, rolls):
                    if rolls:
                        one.log.roll()
                    one.compact(slices)
                case ("wait", milliseconds):
                    one.clock.advance(milliseconds)
                case ("reopen", clean):
                    one.reopen(clean)
            one.settle()
        one.check()
        one.log.roll()
        one.compact(4)
        one.check()
        one.reopen(clean=False)
        one.settle()
        one.check()
        one.log.close()
