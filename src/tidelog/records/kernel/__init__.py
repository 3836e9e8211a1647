"""The kernels: what must look at each record or each batch, without an object for either.

Each is one source file in Cython's pure-Python mode. Where a C compiler is found it is compiled at install; elsewhere the same
file runs interpreted, a hundred times slower and with the same answers. `COMPILED` says which. What several of them need is in
`primitives`, once for C and once for Python. This package is their door: a name is imported from the kernel that has it when it
is asked for first, and `__init__.pyi` has the types. Only the types of `kernel/` itself are Cython's.

==============  ======================================================================================================
`rows`          records of a batch to columns (`Rows`), into Arrow's layouts, and from columns (`BinaryColumn`) to a batch
`batches`       checksums, the walk over a segment (`SegmentScan`), times for time maps
`compaction`    the latest offset of each key (`OffsetTable`), and the two passes of the cleaner
`fast_paths`    what nearly every append and every search by time meets, and fetchers of 0.9.0 in logs of 0.10.0
`primitives`    buffers, varints, checksums, codes of faults, layout: shared by all
==============  ======================================================================================================

Invariants
  - Every length is checked against the bytes that are there before a byte is read; nothing is trusted but the buffer's own
    length.
  - No exceptions in the hot loops, which run without the GIL: they return a fault code (`FAULTS`, `BATCH_FAULTS`) and have the
    position of the fault, and a scan then has appended nothing. Modules of `records` turn faults into errors.
  - Positions are int32 and relative to the buffer that was handed in, so buffers are smaller than 2 GiB.
"""

from __future__ import annotations

from tidelog.lazy_exports import lazy_exports

_HOMES = {
    "batches.checksums": ("CRC32C", "crc32", "crc32c", "crc32c_by_table", "digest_batches"),
    "batches.segment_scan": ("SegmentScan",),
    "batches.time_mapping": ("map_batches", "note_timestamps", "time_bounds"),
    "compaction.clean_pass": ("CleanPass", "GROWTH_BYTES", "NO_BASE"),
    "compaction.map_pass": ("MapPass",),
    "compaction.offset_table": ("OffsetTable", "SLOT_BYTES"),
    "fast_paths.first_match": ("first_match",),
    "fast_paths.plain_append": ("take_plain_batch",),
    "fast_paths.plain_messages": ("holds_messages_only", "plain_messages_to_v0"),
    "fast_paths.walk_times": ("walk_times",),
    "primitives.faults": ("BATCH_CHECKSUM", "BATCH_FAULTS", "BATCH_OVERFLOW", "FAULTS"),
    "primitives.layout": ("KEY", "MAX_INT64", "MIN_INT64", "NO_LIMIT", "VALUE"),
    "rows.binary_column": ("BinaryColumn",),
    "rows.gathering": ("gather", "gather_headers", "sizes", "starts_inside_characters", "timestamp_validity", "views"),
    "rows.message_encode": ("encode_messages", "messages_bytes"),
    "rows.message_scan": ("last_message_offset", "scan_messages"),
    "rows.partitioning": ("murmur2", "murmur2_partitions"),
    "rows.record_check": ("check_records_v2",),
    "rows.record_encode": ("encode_records_v2", "size_records_v2"),
    "rows.record_scan": ("scan_plain_batches", "scan_records_v2"),
    "rows.rows": ("COMPILED", "Rows"),
}
"""Kernel → what callers use of it."""

__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605

__getattr__ = lazy_exports(__name__, {f"{__name__}.{home}": names for home, names in _HOMES.items()})
