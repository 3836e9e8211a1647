"""Client quotas for fetches (KIP-219): if the client is above its quota, the response has no records and the session does not
change.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.broker.fetch.fetch_sessions import FetchedPartition, FetchSession, next_epoch
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from tidelog.broker.fetch.fetch_reader import PartitionRead
    from tidelog.broker.quotas.client_quotas import ClientQuotas
    from tidelog.broker.requests.request import Request

ANSWER_BYTES: Final = 16
PARTITION_BYTES: Final = 48
"""How many bytes quotas count for a response, and for each of its partitions, in addition to the records: estimates."""


def size_of(answered: Sequence[tuple[FetchedPartition, PartitionRead]]) -> Generator[None, None, int]:
    """Return a response's size in bytes, as counted against the quota."""
    size = ANSWER_BYTES + PARTITION_BYTES * len(answered)
    for count, (_, read) in enumerate(answered):
        size += read.size_bytes
        if count % 1024 == 1023:
            yield None
    return size


def throttled(
    quotas: ClientQuotas,
    request: Request,
    size: int,
    busy_ns: int,
    session: FetchSession | None,
    session_epoch: int,
) -> FetchResponse | None:
    """Count a response of `size` bytes. Return None if it may be sent, otherwise the response to send instead."""
    waited_ms = quotas.spent(request, busy_ns) if quotas.counts_time else 0
    throttle_ms = quotas.fetched(request, size)
    if waited_ms and not throttle_ms:
        quotas.not_fetched(request, size)
    throttle_ms = max(throttle_ms, waited_ms)
    if not throttle_ms:
        return None
    response = FetchResponse(throttle_time_ms=throttle_ms)
    if session is not None:
        response.session_id = session.id
        if session.epoch != next_epoch(session_epoch):
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return response
