"""A text that must not be shown: a password, a key, a token. It is shown as `[hidden]`, whatever prints or formats it.

It can be pickled, so that a Spark executor can connect: what is pickled holds the text.
"""

from __future__ import annotations

import hmac

HIDDEN = "[hidden]"


class Secret:
    """A text that is only given to callers of `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text. Its uses must neither log it nor put it into an error."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """Compare in a time that does not depend on the place of the first difference."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)
