"""Plans a scan of any kind of source: checks the request of `tidelog.scan`, and returns the splits to read."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.clock import Clock, SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.formats.paths.file_path import AnyPath
from tidelog.model import READ_COMMITTED, READ_UNCOMMITTED, check_isolation
from tidelog.sources.bounds import (
    HIGH_WATERMARK,
    LOG_END,
    OffsetRanges,
    check_choice,
    check_offsets,
    check_positive,
    time_range,
)
from tidelog.sources.opening import Address, open_source
from tidelog.sources.scan_plan import ScanPlan, ScanRequest
from tidelog.sources.split import Split
from tidelog.times import Time

__all__ = ["plan"]


def plan(
    source: Address,
    topic: str,
    *,
    start: Time | None = None,
    end: Time | None = None,
    tz: str | None = None,
    partitions: Iterable[int] | None = None,
    isolation: str = READ_UNCOMMITTED,
    offsets: OffsetRanges | None = None,
    until: str = LOG_END,
    time_map_dir: AnyPath | None = None,
    split_bytes: int | None = None,
    min_splits: int | None = None,
    clock: Clock | None = None,
    skip_damaged: bool = False,
) -> ScanPlan[Split]:
    """Return the plan of a scan of one topic. The arguments are those of `tidelog.scan`.

    A split has about `split_bytes`, if given. In a folder, a split covers at most one segment. If there would be fewer than
    `min_splits` splits, smaller splits are made, but none smaller than a batch. With `skip_damaged`, this function checks
    everything that is to be read, and the splits leave out damaged batches.

    Raises:
        InvalidArgumentError: an argument is invalid, or not supported by the source.
        NotFoundError: the folder, the topic or a partition does not exist.
        CorruptDataError, SegmentChangedError, StorageError: an error from opening the log.
        BrokerUnreachableError, BrokerError, ProtocolError: an error of brokers.
    """
    request = scan_request(
        topic,
        start=start,
        end=end,
        tz=tz,
        partitions=partitions,
        isolation=isolation,
        offsets=offsets,
        until=until,
        time_map_dir=time_map_dir,
        split_bytes=split_bytes,
        min_splits=min_splits,
        clock=clock,
    )
    with open_source(source, skip_damaged=skip_damaged) as opened:
        return opened.plan(request)


def scan_request(
    topic: str,
    *,
    start: Time | None = None,
    end: Time | None = None,
    tz: str | None = None,
    partitions: Iterable[int] | None = None,
    isolation: str = READ_UNCOMMITTED,
    offsets: OffsetRanges | None = None,
    until: str = LOG_END,
    time_map_dir: AnyPath | None = None,
    split_bytes: int | None = None,
    min_splits: int | None = None,
    clock: Clock | None = None,
) -> ScanRequest:
    """Return the request, with relative times resolved. Raises InvalidArgumentError for arguments that no source accepts."""
    check_choice("isolation", isolation, (READ_UNCOMMITTED, READ_COMMITTED))
    check_choice("until", until, (LOG_END, HIGH_WATERMARK))
    check_positive("split_bytes", split_bytes)
    check_positive("min_splits", min_splits)
    check_offsets(offsets)
    if isinstance(partitions, int):
        raise InvalidArgumentError("partitions must be a list", found=partitions, expected=f"[{partitions}]")
    return ScanRequest(
        topic=topic,
        time=time_range(start, end, SystemClock() if clock is None else clock, zone=tz),
        partitions=None if partitions is None else tuple(partitions),
        isolation=check_isolation(isolation),
        offsets=offsets,
        until=until,
        time_map_dir=time_map_dir,
        split_bytes=split_bytes,
        min_splits=min_splits,
    )
