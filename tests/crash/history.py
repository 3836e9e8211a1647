"""Records whose content follows from who wrote them, and what a log may hold of them after a crash.

A record's value is ``<partition>:<number>``, numbered in the order of writing, so that a reader sees at once whether something
is missing, doubled, torn or in the wrong place. Timestamps run with the number, and now and then jump back or forth.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import Record, iter_records
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.partition_log import PartitionLog

START_MS = 1_700_000_000_000
MAX_RECORDS = 6


@dataclass
class Writer:
    """Appends to one partition's log: plain, idempotent and transactional batches, of any codec."""

    partition: int
    rng: random.Random
    next_number: int = 0
    start_ms: int = START_MS
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: set[int] = field(default_factory=set)

    def append(self, log: PartitionLog, leader_epoch: int = 0) -> tuple[int, int, int]:
        """Append one batch; return its first offset, its last, and the number of its first record (-1: a marker)."""
        if self.open_transactions and self.rng.random() < 0.25:
            return self._end_transaction(log, leader_epoch)
        count = self.rng.randint(1, MAX_RECORDS)
        first = self.next_number
        records = [Record(i, self._timestamp(first + i), 0, b"k%d" % (first % 7), self._value(first + i)) for i in range(count)]
        producer_id = self.rng.choice((-1, -1, 1, 2, 3))
        transactional = producer_id == 3
        sequence = self.sequences.get(producer_id, 0)
        producer = Producer(producer_id, 0, sequence) if producer_id >= 0 else Producer()
        codec = self.rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD))
        data = build_batch_v2(records, codec=codec, producer=producer, is_transactional=transactional)
        info = log.append_as_leader(data, leader_epoch)
        self.next_number += count
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + count
        if transactional:
            self.open_transactions.add(producer_id)
        return info.first_offset, info.last_offset, first

    def _end_transaction(self, log: PartitionLog, leader_epoch: int) -> tuple[int, int, int]:
        producer_id = self.open_transactions.pop()
        kind = self.rng.choice((ControlType.ABORT, ControlType.COMMIT))
        marker = build_end_txn_marker(0, self._timestamp(self.next_number), kind, Producer(producer_id, 0, -1))
        info = log.append_as_leader(marker, leader_epoch, origin=AppendOrigin.COORDINATOR)
        return info.first_offset, info.last_offset, -1

    def _value(self, number: int) -> bytes:
        return b"%d:%d:" % (self.partition, number) + b"x" * (number % 50)

    def _timestamp(self, number: int) -> int:
        return self.start_ms + number * 10 + self.rng.choice((0, 0, 0, -3000, 5000))


def read_all(log: PartitionLog, *, may_have_holes: bool = False) -> dict[int, Record]:
    """Return every record by offset, control records included, reading batch by batch as a fetch does.

    With `may_have_holes`, offsets may be missing between the batches, and before the log's end.
    """
    found: dict[int, Record] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 10_000, min_one_message=True).data
        headers = list(iter_headers(data))
        if not headers:
            assert may_have_holes, f"nothing to read at {offset}, before the end at {log.log_end_offset}"
            break
        for header in headers:
            for record in iter_records(header, data[header.position : header.end_position]):
                if record.offset >= offset:
                    assert record.offset not in found
                    found[record.offset] = record
        offset = headers[-1].last_offset + 1
    assert may_have_holes or sorted(found) == list(range(log.log_start_offset, log.log_end_offset))
    return found


def numbers_of(records: dict[int, Record], partition: int) -> dict[int, int]:
    """Return the number that each offset's record bears, -1 for markers; a torn or foreign value fails."""
    numbers = {}
    for offset, record in records.items():
        if record.value is None or b":" not in record.value:
            numbers[offset] = -1
            continue
        where, number, padding = record.value.split(b":")
        assert int(where) == partition
        assert padding == b"x" * (int(number) % 50)
        numbers[offset] = int(number)
    return numbers


def check_time_search(log: PartitionLog, records: dict[int, Record], rng: random.Random) -> None:
    """Look times up and compare with a search through all records."""
    if not records:
        return
    timestamps = [record.timestamp for record in records.values()]
    for target in [rng.choice(timestamps) + rng.choice((0, 1)) for _ in range(8)] + [max(timestamps) + 1, 0]:
        expected = next(((r.timestamp, offset) for offset, r in sorted(records.items()) if r.timestamp >= target), None)
        found = log.fetch_offset_by_timestamp(target)
        assert (None if found is None else (found.timestamp, found.offset)) == expected, target
