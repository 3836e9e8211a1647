"""The kernels: code that visits each record or each batch, without an object for either.

Each kernel is one source file in Cython's pure-Python mode. If a C compiler is found, the file is compiled at install; otherwise
it runs interpreted, a hundred times slower and with the same results. `COMPILED` says which is the case. Code that several
kernels share is in `primitives`, once for C and once for Python. This package exports the kernels' names: each is imported from
its kernel on first use, and `__init__.pyi` has the types. Cython's own types appear only inside `kernel/`.

==============  ======================================================================================================
`rows`          records of a batch to columns (`Rows`), into Arrow's layouts, and from columns (`BinaryColumn`) to a batch
`batches`       checksums, the walk over a segment (`SegmentScan`), times for time maps, which batches get an index entry
`compaction`    the latest offset of each key (`OffsetTable`), and the two passes of the cleaner
`messages`      frequent requests and responses, read into lists of their fields and written from them
`fast_paths`    the common cases of appends, coordinators' writes, searches by time, fetches by 0.9.0 clients from 0.10.0 logs
`sockets`       threads that send to sockets: small responses (`SendQueue`), and large ones, also from the disk (`Senders`)
`primitives`    buffers, varints, checksums, fault codes, layout: shared by all
==============  ======================================================================================================

Invariants
  - Every length is checked against the remaining bytes before a byte is read; only the buffer's own length is trusted.
  - The hot loops run without the GIL and raise no exceptions: they return a fault code (`FAULTS`, `BATCH_FAULTS`) and store the
    fault's position; a scan then appends nothing. Modules of `records` raise the errors.
  - Positions are int32 and relative to the buffer passed in, so buffers are smaller than 2 GiB.
"""

from __future__ import annotations

from tidelog.lazy_exports import lazy_exports

_HOMES = {
    "batches.append_spans": ("append_spans",),
    "batches.checksums": ("CRC32C", "crc32", "crc32c", "crc32c_by_table", "digest_batches"),
    "batches.segment_scan": ("SegmentScan",),
    "batches.time_mapping": ("map_batches", "note_timestamps", "time_bounds"),
    "compaction.clean_pass": ("CleanPass", "GROWTH_BYTES", "NO_BASE"),
    "compaction.map_pass": ("MapPass",),
    "compaction.offset_table": ("OffsetTable", "SLOT_BYTES"),
    "fast_paths.first_match": ("first_indexed_match", "first_match"),
    "fast_paths.plain_append": ("PlainAppends", "take_plain_batch"),
    "fast_paths.plain_messages": ("holds_messages_only", "plain_messages_to_v0"),
    "fast_paths.state_batch": ("build_commit_batch", "build_state_batch"),
    "fast_paths.walk_times": ("walk_times",),
    "messages.message_plan": ("KINDS", "MessagePlan"),
    "primitives.faults": ("BATCH_CHECKSUM", "BATCH_FAULTS", "BATCH_OVERFLOW", "FAULTS"),
    "primitives.layout": ("KEY", "MAX_INT64", "MIN_INT64", "NO_LIMIT", "VALUE"),
    "rows.binary_column": ("BinaryColumn",),
    "rows.gathering": ("gather", "gather_headers", "sizes", "starts_inside_characters", "timestamp_validity", "views"),
    "rows.message_encode": ("encode_messages", "messages_bytes"),
    "rows.message_scan": ("last_message_offset", "scan_messages"),
    "rows.partitioning": ("crc32_partitions", "murmur2", "murmur2_partitions"),
    "rows.record_check": ("check_records_v2",),
    "rows.record_encode": ("encode_records_v2", "size_records_v2"),
    "rows.record_scan": ("scan_plain_batches", "scan_records_v2"),
    "rows.rows": ("COMPILED", "Rows"),
    "sockets.send_queue": ("SendQueue",),
    "sockets.senders": ("Senders", "is_in_memory"),
}
"""Kernel → the names that callers use."""

__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605

__getattr__ = lazy_exports(__name__, {f"{__name__}.{home}": names for home, names in _HOMES.items()})
