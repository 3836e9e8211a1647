"""How many examples Hypothesis draws: a test says how many `make soak` takes; `make test` takes a third.

`make test` draws the same examples for the same test, so that its verdict is one on the change at hand; `make soak` draws new
ones each time, and what it finds is kept (`.hypothesis`) and tried first the next time.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

IS_SOAK = bool(os.environ.get("TIDELOG_SOAK"))

DEFAULT = 100
"""For who says nothing."""

LEAST = 10
"""A third is no fewer, unless the test takes fewer."""


def drawn(count: int) -> int:
    """Return how many of `count` are drawn now."""
    return count if IS_SOAK else max(-(-count // 3), min(count, LEAST))


def examples(count: int = DEFAULT, **others: Any) -> settings:
    """Return the settings of a test with `count` examples, none of which has a deadline."""
    return settings(max_examples=drawn(count), deadline=None, **others)
