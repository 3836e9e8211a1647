"""Suggests similar names for errors about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MOST_COMPARED = 10_000
"""At most this many names are compared, which takes a little over 0.1 s. A cluster may have more topics."""

_SEPARATORS = str.maketrans("_-", "..")


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return ` (did you mean …?)` with up to `most` known names, the nearest first; an empty string if no name is similar.

    Case and separators (`.`, `-`, `_`) are ignored.
    """
    from difflib import get_close_matches  # Imported here because only error messages need it.

    forms: dict[str, list[str]] = {}
    for one in islice(known, MOST_COMPARED):
        forms.setdefault(_form(one), []).append(one)
    close = [one for form in get_close_matches(_form(name), forms, most) for one in sorted(forms[form])][:most]
    return f" (did you mean {_listed(close)}?)" if close else ""


def _form(name: str) -> str:
    return name.casefold().translate(_SEPARATORS)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def near_topics(name: str, topics: Iterable[str]) -> str:
    """Return `did_you_mean` for topics. Internal topics are suggested only for a name that starts with two underscores."""
    return did_you_mean(name, (one for one in topics if name.startswith("__") or not one.startswith("__")), most=3)
