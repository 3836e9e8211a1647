"""Regular expressions in subscriptions (KIP-848): RE2's syntax, matched in linear time by Google's RE2.

Kafka uses RE2/J, a translation of RE2 into Java with the same syntax: no look-around, no back-references, at most 1,000
repetitions. A pattern must match the whole name of a topic. There are two differences. A compiled pattern is limited to 1 MiB
here. RE2/J knows more names of Unicode scripts, but topic names cannot contain characters of these scripts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tidelog.broker.coordinators.consumer_groups.consumer_group import RefusedError
from tidelog.errors import MissingPackageError
from tidelog.extras import imported_from
from tidelog.wire.error_codes import ErrorCode

MAX_BYTES = 1 << 20
"""The most memory of a compiled pattern and of its automaton, in bytes."""

MAX_PATTERNS = 256
"""The number of patterns whose matches are kept."""

MAX_LENGTH = 4096
"""The most characters of a pattern."""


def check_pattern(pattern: str) -> None:
    """Raise RefusedError (INVALID_REGULAR_EXPRESSION) for a pattern that cannot be used."""
    _compiled(pattern)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that a pattern matches. Any thread may call this. Raises RefusedError (INVALID_REGULAR_EXPRESSION)."""
    matches = _compiled(pattern).fullmatch
    return frozenset(topic for topic in topics if matches(topic))


class PatternMatches:
    """Remembers which topics each pattern matches. A call compares a pattern only with topics that are new to it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[frozenset[str], frozenset[str]]] = OrderedDict()
        """For each pattern, the topics that have been compared with it, and those that match."""

    def unseen(self, pattern: str, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics that have not been compared with the pattern."""
        return topics - self._known.get(pattern, (frozenset(), frozenset()))[0]

    def note(self, pattern: str, seen: frozenset[str], found: frozenset[str]) -> None:
        """Store that the topics `seen` have been compared with the pattern, and that `found` match. Only the `MAX_PATTERNS`
        patterns noted last are kept.
        """
        before, matches = self._known.pop(pattern, (frozenset[str](), frozenset[str]()))
        self._known[pattern] = before | seen, matches | found
        while len(self._known) > MAX_PATTERNS:
            self._known.popitem(last=False)

    def matching(self, pattern: str, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics that a pattern matches. `topics` are all topics. Raises the same errors as the function
        `matching`.
        """
        new = self.unseen(pattern, topics)
        if new:
            self.note(pattern, new, matching(pattern, new))
        seen, found = self._known[pattern] if pattern in self._known else (frozenset[str](), frozenset[str]())
        if not seen <= topics:
            self._known[pattern] = seen & topics, found & topics
        return found & topics


@lru_cache(64)
def _compiled(pattern: str) -> Any:
    try:
        with imported_from("patterns", "google-re2"):
            import re2
    except MissingPackageError as error:
        raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"this broker cannot match patterns: {error}") from None
    if len(pattern) > MAX_LENGTH:
        reason = f"the regular expression has {len(pattern)} characters: at most {MAX_LENGTH} are allowed"
        raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason)
    options = re2.Options()
    options.max_mem = MAX_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        found = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        reason = f"{pattern!r} is not a valid regular expression: {found}"
        raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None
