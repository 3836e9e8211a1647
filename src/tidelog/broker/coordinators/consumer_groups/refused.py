"""The error for a refused heartbeat."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog.wire.error_codes import ErrorCode


class RefusedError(TidelogError):
    """A heartbeat is refused with an error code and a reason, which the client logs."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
