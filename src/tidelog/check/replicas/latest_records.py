"""Compares replicas of a compacted partition, cleaned at different times, by the latest record of each key.

Each broker cleans independently, so below the largest cleaner offset one replica may still have records that another has removed.
Compacting each replica up to that offset must give the same result: the latest record of each key, with its offset, timestamp,
value and headers. The comparison ignores records that a cleaner may either remove or keep: tombstones, records of aborted
transactions, transaction markers, and records without a key.

A log is read twice. The first pass fills a table with the keys, 24 bytes each; the second pass selects records by that table.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from tidelog.check.replicas.difference import Difference, Standing
from tidelog.check.replicas.replica import Replica
from tidelog.reader.log import Log
from tidelog.reader.segment import Segment
from tidelog.records.batch import BatchHeader
from tidelog.records.compaction import new_table
from tidelog.records.kernel import OffsetTable
from tidelog.records.records import Record, iter_records
from tidelog.times import format_time

MOST_KEYS = 4 << 20
"""The largest number of keys in a compared partition. Their table needs 113 MB for each replica, for one partition at a time."""

_one_at_a_time = threading.Lock()


class TooManyKeysError(Exception):
    """A partition has more keys than `MOST_KEYS`."""


class _Kept(NamedTuple):
    """A record that compaction would keep, and where it is stored."""

    record: Record
    segment: Segment
    header: BatchHeader


def latest_difference(replicas: Sequence[Replica], start: int, end: int) -> Difference | None:
    """Return the first difference between the latest records of the keys in `[start, end)`, None if all replicas have the same
    records.

    Raises TooManyKeysError, CorruptDataError with the path of the damaged file, SegmentChangedError, StorageError.
    """
    with _one_at_a_time:
        return _difference(replicas, start, end)


def _difference(replicas: Sequence[Replica], start: int, end: int) -> Difference | None:
    tables = [_table(replica.log, start, end) for replica in replicas]
    kept = [_kept(replica.log, start, end, table) for replica, table in zip(replicas, tables, strict=True)]
    for row in zip_longest(*kept):
        records = [None if one is None else one.record for one in row]
        if any(record != records[0] for record in records):
            offset = min(record.offset for record in records if record is not None)
            standings = [_standing(replica, one, offset) for replica, one in zip(replicas, row, strict=True)]
            what = f"the latest records of the keys below offset {end} differ from offset {offset} on"
            return Difference("latest records", replicas[0].key, what, standings, offset)
    return None


def _table(log: Log, start: int, end: int) -> OffsetTable:
    table = new_table(MOST_KEYS + MOST_KEYS // 8 + 1)
    for _, _, record in _records(log, start, end):
        if record.key is not None:
            table.put(record.key, record.offset)
            if table.size > MOST_KEYS:
                raise TooManyKeysError
    return table


def _kept(log: Log, start: int, end: int, table: OffsetTable) -> Iterator[_Kept]:
    for segment, header, record in _records(log, start, end):
        if record.key is not None and record.value is not None and table.get(record.key) == record.offset:
            yield _Kept(record, segment, header)


def _records(log: Log, start: int, end: int) -> Iterator[tuple[Segment, BatchHeader, Record]]:
    aborted = defaultdict(list)
    for one in log.aborted_transactions(start, end):
        aborted[one.producer_id].append((one.first_offset, one.last_offset))
    for segment, header in log.segment_headers(start, end, check_crc=True):
        if header.is_control:
            continue
        if header.is_transactional and any(a <= header.base_offset <= b for a, b in aborted[header.producer_id]):
            continue
        for record in iter_records(header, segment.read_batch(header), check_crc=False, path=segment.log_path):
            if start <= record.offset < end:
                yield segment, header, record


def _standing(replica: Replica, one: _Kept | None, offset: int) -> Standing:
    if one is None or one.record.offset > offset:
        return Standing(
            replica.directory,
            replica.log.directory,
            None,
            f"offset {offset} is not the latest record of any key",
        )
    record, value = one.record, one.record.value or b""
    time = "no time" if record.timestamp < 0 else format_time(record.timestamp)
    what = f"record at offset {offset}, {time}, the latest of its key, with a value of {len(value)} bytes"
    return Standing(replica.directory, one.segment.log_path, one.header.position, what, one.header, True)
