"""The column kernel alone: no files, no Arrow. Processor time of one thread, medians of five.

| line | what is measured |
|---|---|
| positions | `scan_records_v2`: offset, timestamp, and where key and value lie, of every record |
| batch to columns | `Columns.add`: the batch's checksum and bounds, then the positions |
| keys and values | copied into Arrow's binary layout |
| key and value views | Arrow's view layout |
| encode | columns to the records sections of batches, as in an import |

Records have a 7-byte key and a value of 84 bytes, about 100 bytes in the log. The kernel's plain Python version is measured too.
"""

from __future__ import annotations

import statistics
import sys
import time
from array import array
from collections.abc import Callable
from types import ModuleType

from tests.records.kernels import INTERPRETED

from tidelog.records import builder, columns, kernel
from tidelog.records.batch import HEADER_BYTES, BatchHeader, iter_headers
from tidelog.records.builder import binary_column, build_batch_v2_from_columns
from tidelog.records.columns import Columns

RUNS = 5
TARGETS = {("compiled", 10_000, "positions"): 60.0, ("interpreted", 10_000, "positions"): 0.5}


def make_log(records: int, records_a_batch: int) -> tuple[bytes, list[BatchHeader]]:
    """Return consecutive v2 batches and their headers."""
    log = bytearray()
    for base in range(0, records, records_a_batch):
        timestamps = array("q", [1_600_000_000_000 + base + i for i in range(records_a_batch)])
        keys = binary_column([b"%07d" % (base + i) for i in range(records_a_batch)])
        values = binary_column([b"%084d" % (base + i) for i in range(records_a_batch)])
        log += build_batch_v2_from_columns(timestamps, keys, values, base_offset=base).data
    return bytes(log), list(iter_headers(log))


def rate(work: Callable[[], object], records: int) -> float:
    """Return the rate in millions of records per second."""
    seconds = []
    for _ in range(RUNS):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return records / statistics.median(seconds) / 1e6


def measure(records: int, records_a_batch: int) -> dict[str, float]:
    """Return the table's lines for batches of one size, with the current kernel."""
    log, headers = make_log(records, records_a_batch)
    used = columns.kernel
    rows = used.Rows(records_a_batch)

    def positions() -> None:
        for header in headers:
            rows.clear()
            start = header.position + HEADER_BYTES
            used.scan_records_v2(
                rows,
                log,
                start,
                header.end_position,
                header.record_count,
                header.base_offset,
                header.last_offset,
                0,
                -1,
                0,
                0,
                used.NO_LIMIT,
            )

    collected = Columns(capacity=records)

    def collect() -> None:
        collected.clear()
        for header in headers:
            collected.add(header, log, header.position)

    def encode() -> None:
        keys, values = binary_column([b"%07d" % i for i in range(1)]), binary_column([bytes(84)])
        timestamps, indices = array("q", [1_600_000_000_000]), array("i", bytes(4 * records_a_batch))
        arguments = (timestamps, keys, values, None, indices, None, None, 0)
        _, size, _ = used.size_records_v2(*arguments, records_a_batch, used.NO_LIMIT)
        out = bytearray(size)
        for _ in headers:
            used.encode_records_v2(out, 0, *arguments, records_a_batch)

    found = {"positions": rate(positions, records), "batch to columns": rate(collect, records)}
    found["keys and values"] = rate(lambda: (collected.keys(), collected.values()), records)
    found["key and value views"] = rate(lambda: (collected.key_views(), collected.value_views()), records)
    found["encode"] = rate(encode, records)
    return found


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a target is missed."""
    kernels: list[tuple[str, ModuleType]] = [("interpreted", INTERPRETED)]
    if kernel.COMPILED:
        kernels.insert(0, ("compiled", kernel))
    print(f"{'kernel':<12} {'records a batch':>15}  {'work':<20} {'M records/s':>11}  target")
    missed = False
    for name, module in kernels:
        builder.kernel = columns.kernel = module  # type: ignore[assignment]
        for records_a_batch in (10_000, 160, 1):
            records = (200_000 if name == "compiled" else 20_000) // (1 if records_a_batch > 1 else 10)
            for work, found in measure(records, records_a_batch).items():
                target = TARGETS.get((name, records_a_batch, work))
                missed = missed or (target is not None and found < target)
                verdict = "" if target is None else f">= {target:g} {'met' if found >= target else 'MISSED'}"
                print(f"{name:<12} {records_a_batch:>15,}  {work:<20} {found:>11.2f}  {verdict}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
