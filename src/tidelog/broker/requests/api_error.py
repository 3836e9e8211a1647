"""The errors with which handlers refuse requests.

Checks in handlers raise `ApiError`, or an error of the storage engine, which `api_error_of` converts to a code and a reason. The
reason is the error message for the client.
"""

from __future__ import annotations

import logging

from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.wire.error_codes import ErrorCode, error_code_of

logger = logging.getLogger("tidelog.broker")


MAX_REASON = 1000
"""The most characters of an error message in a response. A string of the protocol has at most 32,767 bytes, and a response may
have ten thousand errors.
"""


def shortened(reason: str) -> str:
    """Return the reason, shortened to `MAX_REASON` characters if it is longer, for example because it quotes a value from the
    request.
    """
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]} …"


class ApiError(Exception):
    """An error code for the response, with a reason."""

    def __init__(self, code: ErrorCode, reason: str | None = None) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = None if reason is None else shortened(reason)


MAX_CHANGED = 10_000
"""The most metadata records that one request may write, as in Kafka's controller."""


def too_many_changes() -> ApiError:
    """Return the error for a request that would write more than `MAX_CHANGED` records. None of its changes are made."""
    return ApiError(ErrorCode.POLICY_VIOLATION, f"too many changes in one request: at most {MAX_CHANGED}")


def check_size(records: int) -> None:
    """Raise ApiError if a request would write more than `MAX_CHANGED` metadata records."""
    if records > MAX_CHANGED:
        raise too_many_changes()


def api_error_of(error: Exception) -> ApiError:
    """Return the error code and reason for a response. An unexpected error is logged, and its text is not sent to the client."""
    if isinstance(error, ApiError):
        # Without this, the error's traceback and the handler would form a cycle; the collector frees thousands of them in one
        # pause.
        return error.with_traceback(None)
    if isinstance(error, InvalidArgumentError):
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(error, TidelogError):
        return ApiError(error_code_of(error), error.message)
    logger.error("a request failed", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
