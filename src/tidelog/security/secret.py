"""A string that must not be printed: a password, a key, a token. However it is printed or formatted, `[hidden]` appears.

It can be pickled, so that a Spark executor can connect. The pickle contains the string in plain text.
"""

from __future__ import annotations

import hmac

HIDDEN = "[hidden]"


class Secret:
    """A string that only `reveal` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the string. Callers must neither log it nor put it into an error."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """Compare in constant time."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)
