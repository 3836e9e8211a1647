"""Resolves a command's topic arguments: a name, a shell pattern (`order*`), or a regular expression (`^order`).

A pattern matches internal topics, whose names begin with two underscores, only if it begins with two underscores, too.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from tidelog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from tidelog.model import is_hidden
from tidelog.sources.source import Source


def named_topics(source: Source, names: Iterable[str]) -> list[str]:
    """Return the topics without duplicates, in the order of the arguments, and sorted by name for a pattern.

    A name that is not a pattern is returned even if there is no such topic.

    Raises:
        InvalidArgumentError: a malformed regular expression.
        UnknownTopicOrPartitionError: a pattern that matches no topic.
    """
    existing: list[str] | None = None
    found: dict[str, None] = {}
    for name in names:
        if ":" in name:  # No topic's name has one.
            raise UnknownTopicOrPartitionError(
                f"no topic {name!r}: a time that contains a space needs quotes, such as --from '2026-11-19 09:00'",
                path=source.address,
            )
        if not _is_pattern(name):
            found[name] = None
            continue
        existing = sorted(source.topics()) if existing is None else existing
        pattern = _compiled(name)
        matches = [one for one in existing if pattern.search(one) and (is_hidden(name.lstrip("^")) or not is_hidden(one))]
        if not matches:
            raise UnknownTopicOrPartitionError(f"no topic matches {name!r}", path=source.address)
        found.update(dict.fromkeys(matches))
    return list(found)


def _is_pattern(name: str) -> bool:
    # None of these characters is allowed in a topic's name.
    return name.startswith("^") or any(sign in name for sign in "*?[")


def _compiled(name: str) -> re.Pattern[str]:
    try:
        return re.compile(name if name.startswith("^") else fnmatch.translate(name))
    except re.error as error:
        raise InvalidArgumentError(f"the topic pattern is not a regular expression: {error}", found=repr(name)) from None
