"""The error for a refused request of a group's member."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog.wire.error_codes import ErrorCode


class RefusedError(TidelogError):
    """A member's request is refused with an error code and a reason, which the client logs."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
