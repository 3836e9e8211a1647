"""Reads from control batches the transaction markers, which say how a producer's transaction ended (KIP-98).

A marker's batch holds one record, with the type in the record's key (`control`). After a compaction the batch may have no record.
Other types of control records do not concern transactions. Producer state is rebuilt from checked batches with `end_txn_marker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.records.batch import HEADER_BYTES, BatchHeader, PathLike, check_crc
from tidelog.records.compression import Bytes
from tidelog.records.control import ControlType, EndTxnMarker, parse_control_type, parse_end_txn_marker
from tidelog.records.records import iter_records

MARKER_BATCH_BYTES = HEADER_BYTES + 17
"""The size of every marker batch: the key has version and type, the value has version and coordinator epoch."""


def end_txn_marker(header: BatchHeader, batch: Bytes, path: PathLike = None) -> EndTxnMarker | None:
    """Return the marker in a control batch, or None if the batch has no marker. `batch` has exactly the batch's bytes. Raises
    InvalidRecordError.
    """
    position = header.position
    for record in iter_records(header, batch, check_crc=False, path=path):
        if parse_control_type(record.key, path=path, position=position) in (ControlType.ABORT, ControlType.COMMIT):
            return parse_end_txn_marker(record.key, record.value, path=path, position=position)
    return None


def data_batches(
    headers: Iterable[BatchHeader], records: memoryview, aborted: Iterable[tuple[int, int]], path: PathLike = None
) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield each data batch, with True if its transaction was aborted, otherwise False.

    `headers` are the headers of the batches in `records`, in order. `aborted` are a fetch response's aborted transactions, each a
    first offset and a producer id. Verifies the checksums of control batches and of aborted batches. Raises CorruptBatchError.
    """
    pending = sorted(aborted, reverse=True)
    aborting: set[int] = set()
    for header in headers:
        while pending and pending[-1][0] <= header.last_offset:
            aborting.add(pending.pop()[1])
        is_aborted = header.is_transactional and header.producer_id in aborting
        if header.is_control or is_aborted:
            check_crc(header, records[header.position : header.position + header.size], path)
        if header.is_control:
            if aborting and _is_abort(header, records):
                aborting.discard(header.producer_id)
            continue
        yield header, is_aborted


def _is_abort(header: BatchHeader, records: memoryview) -> bool:
    batch = records[header.position : header.position + header.size]
    record = next(iter_records(header, batch, check_crc=False), None)
    return record is not None and parse_control_type(record.key) is ControlType.ABORT
