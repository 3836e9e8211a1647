"""Prepares fetch responses for older clients: converts records to a message format that the client knows, or returns an error.
See `down_conversion`.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, cast

from tidelog.broker.fetch.down_conversion import Converted, down_converting, newest_magic
from tidelog.broker.fetch.fetch_reader import PartitionRead, by_topic, error_answer
from tidelog.broker.fetch.fetch_sessions import FetchedPartition
from tidelog.broker.requests.slices import Elsewhere, Work
from tidelog.errors import TidelogError
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from tidelog.broker.fetch.fetching_broker import FetchingBroker

INLINE_CONVERSION_BYTES = 4096
"""Responses with more bytes than this are converted on another thread."""

TURN_S = 0.02
"""How long, in seconds, the other thread converts one response before others get a turn. A single batch may take longer."""


def as_known(broker: FetchingBroker, version: int, wanted: FetchedPartition, read: PartitionRead) -> PartitionRead:
    """Return `read`, or an error if a client of this version cannot read the topic: its compression is zstd, or its message
    format is newer and conversion is off. The records are not examined.
    """
    log = broker.manager.logs.get(wanted.key) if wanted.key is not None else None
    if log is None:
        return read
    if log.config.compression_type == "zstd":
        return _refused(wanted, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if log.config.magic > newest_magic(version) and not log.config.message_downconversion_enable:
        return _refused(wanted, ErrorCode.UNSUPPORTED_VERSION)
    return read


def converted(broker: FetchingBroker, version: int, answered: list[tuple[FetchedPartition, PartitionRead]]) -> Work:
    """Return the response with its records in a format that the client knows."""
    magic = newest_magic(version)
    work = [(wanted, read, read.log.config.magic) for wanted, read in answered if read.size_bytes and read.log is not None]
    is_little = sum(read.size_bytes for _, read, _ in work) <= INLINE_CONVERSION_BYTES
    done = {}
    for wanted, read, configured in work:
        some = partial(_some, down_converting(read.answer.records, configured, magic, wanted.fetch_offset))
        result: Converted | ErrorCode | None = None
        while result is None:
            result = some() if is_little else (yield Elsewhere(some))
        if isinstance(result, ErrorCode):
            done[wanted.name] = _refused(wanted, result)
        else:
            read.answer.records = result.records
            broker.metrics.counters.down_converted_batches += result.batches
    shown = [(wanted, done.get(wanted.name, read)) for wanted, read in answered]
    return FetchResponse(responses=(yield from by_topic(shown)))


def _refused(wanted: FetchedPartition, code: int) -> PartitionRead:
    """Return a partition's result with an error, and null instead of records."""
    answer = error_answer(wanted, code)
    answer.records = None
    return PartitionRead(answer, 0, None, None)


def _some(conversion: Generator[None, None, Converted]) -> Converted | ErrorCode | None:
    """Convert for at most one turn, because other responses wait for the thread. Return None if there is more to convert."""
    until = perf_counter() + TURN_S
    try:
        while True:
            next(conversion)
            if perf_counter() >= until:
                return None
    except StopIteration as end:
        return cast("Converted", end.value)
    except TidelogError as error:
        return error_code_of(error)
