"""Transaction markers, read from their batches: what a control batch says about its producer's transaction.

A marker's batch holds one record, with a type in its key (`control`). Compaction leaves batches without one; other types of
control records say nothing about transactions. What rebuilds producer state asks this, with a batch whose checksum it knows
to be right.
"""

from __future__ import annotations

from tidelog.records.batch import BatchHeader, PathLike
from tidelog.records.compression import Bytes
from tidelog.records.control import ControlType, EndTxnMarker, parse_control_type, parse_end_txn_marker
from tidelog.records.records import iter_records


def end_txn_marker(header: BatchHeader, batch: Bytes, path: PathLike = None) -> EndTxnMarker | None:
    """Return the marker in a control batch, exactly its bytes; None if it holds none. Raises InvalidRecordError."""
    position = header.position
    for record in iter_records(header, batch, check_crc=False, path=path):
        if parse_control_type(record.key, path=path, position=position) in (ControlType.ABORT, ControlType.COMMIT):
            return parse_end_txn_marker(record.key, record.value, path=path, position=position)
    return None
