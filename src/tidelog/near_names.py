"""Which name was probably meant: for errors about a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

MOST_COMPARED = 10_000
"""A cluster may have more topics; comparing so many takes a good tenth of a second."""

_SEPARATORS = str.maketrans("_-", "..")


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Return ` (did you mean …?)` with up to `most` of the known names, the nearest first; nothing if none is close.

    Case and separators (`.`, `-`, `_`) are ignored.
    """
    from difflib import get_close_matches  # For an error's text only.

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
    """Return `did_you_mean` of topics: internal ones only for a name that begins as theirs do."""
    return did_you_mean(name, (one for one in topics if name.startswith("__") or not one.startswith("__")), most=3)
