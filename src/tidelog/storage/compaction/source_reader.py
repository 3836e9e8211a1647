"""Reads the segments that a pass compacts, through separate descriptors, so that any thread may read them.

Another thread works for `SHARE_S` at a time, much longer than a slice of the logs' thread: each handover between threads costs
milliseconds on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import thread_time
from typing import TypeVar

from tidelog.errors import CorruptBatchError
from tidelog.records.batch import LOG_OVERHEAD, MIN_HEADER_BYTES, iter_headers, read_header
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.log_segment import LogSegment

_T = TypeVar("_T")

SHARE_S = 0.1
"""How much processor time, in seconds, another thread uses for one share of the work. A shutdown waits for the end of a share."""

OPEN_AT_ONCE = 16
"""How many segments a share may have open."""


def take_share(steps: Iterator[object], is_aside: bool, is_stopped: Callable[[], bool] = lambda: False) -> bool:
    """Run steps for `SHARE_S` of processor time, or a single step on the logs' own thread. Return whether all steps have been
    run.

    Ends early once `is_stopped` returns True.
    """
    ends = thread_time() + SHARE_S if is_aside else 0.0
    return not any(is_stopped() or thread_time() >= ends for _ in steps)


def read_batches(log: LogFile, position: int, buffer_bytes: int) -> memoryview:
    """Return about `buffer_bytes`, starting with the complete batch at `position`. Raises CorruptBatchError if there is none."""
    view = memoryview(log.read(position, buffer_bytes))
    if next(iter_headers(view, position, log.path), None) is not None:
        return view
    left = log.size_bytes - position
    if left < MIN_HEADER_BYTES:
        raise CorruptBatchError("the header of a batch is truncated", path=log.path, position=position, found=f"{left} bytes")
    size = int.from_bytes(view[8:LOG_OVERHEAD]) + LOG_OVERHEAD
    if size > left:
        raise CorruptBatchError(
            "a batch is longer than the remaining part of its segment",
            path=log.path,
            position=position,
            found=f"{size} bytes",
            expected=f"at most {left}",
        )
    view = memoryview(log.read(position, size))
    read_header(view, 0, position, log.path)
    return view


def opened(segment: LogSegment) -> LogFile:
    """Open a segment's `.log` with a separate descriptor for other threads. Its last user closes it."""
    log = LogFile(segment.log.path, segment.size_bytes)
    log.descriptor()  # If descriptors run out, logs of this thread can release some.
    return log


def in_parts(sources: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield `sources` in parts, each with few enough to be open at the same time."""
    for first in range(0, len(sources), OPEN_AT_ONCE):
        yield sources[first : first + OPEN_AT_ONCE]
