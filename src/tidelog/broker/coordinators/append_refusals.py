"""The errors of an append to a coordinator's log, and the error codes that clients get for them."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog.wire.error_codes import ErrorCode, error_code_of

_REFUSAL_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class AppendRefusedError(TidelogError):
    """Records cannot be appended now. `code` is the error code that a producer would get."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def refusal(error: TidelogError) -> ErrorCode:
    """Return the error code that a client gets after `StateLog.append` has raised an error."""
    return refusal_of(code_of(error))


def refusal_of(code: ErrorCode) -> ErrorCode:
    """Return the error code that a client gets if the log refuses records with `code`, or does not commit them."""
    return _REFUSAL_CODES.get(code, code)


def code_of(error: TidelogError) -> ErrorCode:
    """Return the error code for an error that `StateLog.append` has raised."""
    return error.code if isinstance(error, AppendRefusedError) else error_code_of(error)
