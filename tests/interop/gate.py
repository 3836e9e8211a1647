"""Selects the cases of a test that `make interop` runs; `make interop-all` runs all (see `tests/interop/__main__.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

COLLECTED: pytest.StashKey[dict[str, set[bool]]] = pytest.StashKey()
"""By file: whether it has tests that `make interop` runs (True), and others (False)."""


def first_of(first: Any, *others: Any, why: str) -> list[Any]:
    """Return a parameter's cases: the first for `make interop`, the others marked `thorough`. A tuple is one case."""
    return [first, *(pytest.param(*_values(case), marks=pytest.mark.thorough(why)) for case in others)]


def of_each_file(items: Iterable[pytest.Item]) -> dict[str, set[bool]]:
    """Return what `COLLECTED` holds. UsageError where a mark does not say what `make interop` has instead."""
    found: dict[str, set[bool]] = defaultdict(set)
    for item in items:
        marks = list(item.iter_markers("thorough"))
        for mark in marks:
            if not (mark.args and isinstance(mark.args[0], str) and mark.args[0].strip()):
                raise pytest.UsageError(f"{item.nodeid}: thorough(why) says what `make interop` has instead")
        found[item.nodeid.partition("::")[0]].add(not marks)
    return found


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
