"""The reason for which a request is refused, raised by a rule and turned into the response.

A handler's rules raise `ApiError`, or an error of the engine's; `api_error_of` makes one of the other. Reasons are for people.
"""

from __future__ import annotations

import logging

from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.wire.error_codes import ErrorCode, error_code_of

logger = logging.getLogger("tidelog.broker")


MAX_REASON = 1000
"""So many characters are reported: a string of the protocol has 32,767 bytes at most, and a request may name ten thousand
things.
"""


def shortened(reason: str) -> str:
    """Return a reason that fits into an answer, whatever of the request it repeats."""
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]} …"


class ApiError(Exception):
    """An error code for the answer, and why."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = None if reason is None else shortened(reason)


MAX_CHANGED = 10_000
"""Records of the metadata that one request may make, as Kafka's controller takes them."""


def too_many_changes() -> ApiError:
    """Return how a request is refused that would make more: none of it is done."""
    return ApiError(ErrorCode.POLICY_VIOLATION, f"too many changes in one request: at most {MAX_CHANGED}")


def check_size(records: int) -> None:
    """Raise ApiError for a request that would make so many records, if they are too many."""
    if records > MAX_CHANGED:
        raise too_many_changes()


def api_error_of(error: Exception) -> ApiError:
    """Return the code and reason that answer `error`; an unexpected error is logged, and answered without its text."""
    if isinstance(error, ApiError):
        # A handler that keeps the error would be kept by it: the collector takes thousands of such cycles in one go.
        return error.with_traceback(None)
    if isinstance(error, InvalidArgumentError):
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, TidelogError):
        return ApiError(error_code_of(error), error.message)
    logger.error("a request failed", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
