"""KIP-32's migration: what a broker converts in each phase, for producers and fetchers of each version.

| | phase 1: v0 on disk | phase 2: v1 on disk |
|---|---|---|
| produce v1 (v0 messages) | | |
| produce v2 (v1 messages) | | |
| fetch v1 (knows v0) | | |
| fetch v2 (knows v0 and v1) | | |

A produce cell is `records.validation` on a request of that format, for a topic of that format; a fetch cell is
`records.conversion.down_convert` on the stored bytes. Unchanged bytes could be sent without a copy. Processor time is compared
with the cheapest cell of the same kind. Requests over the network are not part of this study.

The start of phase 2, when a segment holds both formats, is a separate cell.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from studies.case import Case, Measurement
from studies.options import sizes
from studies.workload import EPOCH_MS
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import iter_headers
from tidelog.records.compression import Codec
from tidelog.records.conversion import down_convert
from tidelog.records.legacy import build_message_set
from tidelog.records.validation import ValidationRules, validate_and_assign_offsets

PART = "migration"

VALUE_BYTES = 100
BASE_OFFSET = 1_000
PHASES = {"phase 1: v0 on disk": 0, "phase 2: v1 on disk": 1}
REQUESTS = {"v1": 0, "v2": 1}
"""The message format of a request's version: produce and fetch v1 know v0; v2 knows v1 as well."""


class Cell(NamedTuple):
    """A cell of the plan: its subject, and the draft's claim."""

    subject: str
    disk: int
    kind: str
    magic: int
    converts: bool
    """The draft's claim: whether messages are rebuilt (and recompressed)."""


CELLS = tuple(
    Cell(f"{phase}, {kind} {version}", disk, kind, magic, converts)
    for phase, disk in PHASES.items()
    for kind, version, converts in (
        ("produce", "v1", disk == 1),
        ("produce", "v2", disk == 0),
        ("fetch", "v1", disk == 1),
        ("fetch", "v2", False),
    )
    for magic in (REQUESTS[version],)
)
MIXED = "start of phase 2: both on disk, fetch v1"


def cases(scale: float) -> list[Case]:
    """Return the case. `repeats` is how often a cell is timed."""
    repeats = max(3, int(15 * scale))
    return [Case(PART, "all cells", {"messages": sizes.MESSAGES, "value bytes": VALUE_BYTES, "repeats": repeats})]


def measure(case: Case) -> Iterator[Measurement]:
    """Measure the cells with each codec; each codec is a case."""
    for codec_name in sizes.CODECS:
        yield from _measure_codec(codec_name, int(case.parameters["repeats"]))


def _measure_codec(codec_name: str, repeats: int) -> Iterator[Measurement]:
    codec = sizes.CODECS[codec_name]
    times: dict[str, float] = {}
    for cell in CELLS:
        works = produce(cell, codec) if cell.kind == "produce" else fetch(cell.disk, cell.magic, codec)
        converted = works()
        if cell.kind == "fetch" and not converted:
            works = copy(cell.disk, codec)
        times[cell.subject] = _microseconds(works, repeats) / sizes.MESSAGES
        yield Measurement(PART, codec_name, cell.subject, "converted", converted, "share")
        yield Measurement(PART, codec_name, cell.subject, "processor time a message", times[cell.subject], "µs")
    for cell in CELLS:
        cheapest = min(times[other.subject] for other in CELLS if other.kind == cell.kind)
        ratio = times[cell.subject] / cheapest
        yield Measurement(PART, codec_name, cell.subject, "processor time beside the cheapest", ratio, "x")
    yield Measurement(PART, codec_name, MIXED, "converted", mixed(codec), "share")


def request(magic: int, codec: Codec, base_offset: int = 0) -> bytes:
    """Return a produce request's message set, or with a base offset the set as it is stored."""
    records = sizes.records(*sizes.content(VALUE_BYTES))
    return bytes(
        build_message_set([record._replace(offset=base_offset + record.offset) for record in records], magic, codec=codec)
    )


def produce(cell: Cell, codec: Codec) -> Callable[[], float]:
    """Return a function that validates a request, and reports whether it was rebuilt (1) or patched in place (0)."""
    sent = request(cell.magic, codec)
    rules = ValidationRules(magic=cell.disk)

    def works() -> float:
        buffer = bytearray(sent)
        headers = list(iter_headers(buffer))
        done = validate_and_assign_offsets(buffer, headers, rules, base_offset=BASE_OFFSET, now_ms=EPOCH_MS)
        return float(done.size_may_have_changed)

    return works


def fetch(disk: int, magic: int, codec: Codec) -> Callable[[], float]:
    """Return a function that answers a fetch, and reports whether bytes changed (1) or could be sent unchanged (0)."""
    stored = request(disk, codec, BASE_OFFSET)

    def works() -> float:
        return float(fetched(stored, magic) != stored)

    return works


def fetched(stored: bytes, magic: int) -> bytes:
    """Return what a client of this format gets."""
    return b"".join(down_convert(stored, header, magic, BASE_OFFSET) for header in iter_headers(stored))


def copy(disk: int, codec: Codec) -> Callable[[], float]:
    """Return a stand-in for sending stored bytes without reading them: one copy, although a broker would need none."""
    stored = memoryview(request(disk, codec, BASE_OFFSET))
    return lambda: float(len(bytes(stored)))


def mixed(codec: Codec) -> float:
    """Return the share of bytes that fetch v1 changes if a segment holds equally many v0 and v1 messages."""
    old = request(0, codec, BASE_OFFSET)
    new = request(1, codec, BASE_OFFSET + sizes.MESSAGES)
    stored = old + new
    sent = fetched(stored, 0)
    assert all(header.max_timestamp == NO_TIMESTAMP for header in iter_headers(sent)), "v0 has no timestamps"
    return len(new) / len(stored) if sent[: len(old)] == old else 1.0


def _microseconds(works: Callable[[], float], repeats: int) -> float:
    """Return the median processor time of a call."""
    works()
    taken = []
    for _ in range(repeats):
        start = time.process_time_ns()
        works()
        taken.append((time.process_time_ns() - start) / 1000)
    return statistics.median(taken)
