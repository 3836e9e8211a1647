"""Lines of UnifiedLogTest on reading that belong to no one file: compressed batches; transactions, index and high watermark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.formats.txn_index import AbortedTxn, TxnIndex
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.records import iter_records

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


@pytest.mark.parametrize("magic", [1, 2])
def test_compressed_messages(tmp_path: Path, magic: int) -> None:
    """UnifiedLogTest.testCompressedMessages: a read inside a compressed batch starts with the whole batch."""
    batches = [build.batch(first, [first, first + 1], magic=magic, codec=Codec.GZIP) for first in (0, 2)]
    log = LogBuilder(tmp_path / "t-0").append(*batches).close().open()
    for offset, expected in ((0, [0, 1, 2, 3]), (1, [0, 1, 2, 3]), (2, [2, 3]), (3, [2, 3]), (4, [])):
        read = [
            record.offset
            for segment, header in log.segment_headers(offset)
            for record in iter_records(header, segment.read_batch(header))
        ]
        assert read == expected


def test_transaction_index_updated(tmp_path: Path) -> None:
    """UnifiedLogTest.testTransactionIndexUpdated: four producers and plain records between; two abort, two commit."""
    # (producer or None, how many records) or (producer, marker)
    steps: list[tuple[int | None, int | ControlType]] = [
        *((1, 5), (None, 3), (2, 2), (1, 4), (3, 3), (None, 2), (1, 10), (1, ABORT)),  # to offset 29
        *((2, 6), (4, 3), (None, 10), (3, 9), (3, COMMIT), (4, 8), (2, 7), (2, ABORT)),  # to offset 74
        *((None, 10), (4, 4), (4, COMMIT)),
    ]
    builder = LogBuilder(tmp_path / "t-0")
    for producer_id, what in steps:
        offset = builder.next_offset
        if isinstance(what, ControlType):
            assert producer_id is not None
            builder.append(build.marker(offset, offset, what, producer_id))
        else:
            producer = None if producer_id is None else Producer(producer_id, 0, offset)
            builder.append(
                build.batch(offset, range(offset, offset + what), producer=producer, transactional=producer is not None)
            )
    builder.close()
    aborted = [AbortedTxn(1, 0, 29, 8), AbortedTxn(2, 8, 74, 36)]
    assert TxnIndex.open(builder.file(0, ".txnindex"), 0).aborted == aborted
    end = builder.next_offset
    for with_index in (True, False):
        if not with_index:
            builder.file(0, ".txnindex").unlink()
            for path in builder.directory.glob("*.snapshot"):
                path.unlink()
        assert builder.open().aborted_transactions(0, end) == aborted
        # The first undecided offset moves when a marker is below the high watermark.
        assert [builder.open(high_watermark=mark).last_stable_offset for mark in (29, 30, 74, 75, end)] == [0, 8, 8, 36, end]
