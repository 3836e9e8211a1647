"""Which batches of a fetch are data, and which of these belong to aborted transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.records import iter_records


def data_batches(
    headers: Iterable[BatchHeader], records: memoryview, aborted: Iterable[tuple[int, int]]
) -> Iterator[tuple[BatchHeader, bool]]:
    """Yield the batches that are data, and whether their transaction was aborted.

    `headers` are those of `records`, in order; `aborted` are a fetch's aborted transactions: first offset, producer id.
    """
    pending = sorted(aborted, reverse=True)
    aborting: set[int] = set()
    for header in headers:
        while pending and pending[-1][0] <= header.last_offset:
            aborting.add(pending.pop()[1])
        if header.is_control:
            if aborting and _is_abort(header, records):
                aborting.discard(header.producer_id)
            continue
        yield header, header.is_transactional and header.producer_id in aborting


def _is_abort(header: BatchHeader, records: memoryview) -> bool:
    batch = records[header.position : header.position + header.size]
    record = next(iter_records(header, batch), None)
    return record is not None and parse_control_type(record.key) is ControlType.ABORT
