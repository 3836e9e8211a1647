"""The bytes of record batches: headers, records, codecs, control records, builders, and the column kernel.

This package is pure: it uses no files, no clock, no event loop and no Arrow. `formats/` and every layer above it may import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.records.batch import CREATE_TIME as CREATE_TIME
    from tidelog.records.batch import LOG_APPEND_TIME as LOG_APPEND_TIME
    from tidelog.records.batch import BatchHeader as BatchHeader
    from tidelog.records.batch import iter_headers as iter_headers
    from tidelog.records.builder import Producer as Producer
    from tidelog.records.builder import build_batch_v2 as build_batch_v2
    from tidelog.records.compression import Codec as Codec
    from tidelog.records.records import Record as Record
    from tidelog.records.records import iter_records as iter_records
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.records.batch": ("CREATE_TIME", "LOG_APPEND_TIME", "BatchHeader", "iter_headers"),
            "tidelog.records.builder": ("Producer", "build_batch_v2"),
            "tidelog.records.compression": ("Codec",),
            "tidelog.records.records": ("Record", "iter_records"),
        },
    )

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "BatchHeader",
    "Codec",
    "Producer",
    "Record",
    "build_batch_v2",
    "iter_headers",
    "iter_records",
]
