"""The number of Hypothesis examples: a test sets the number for `make soak`; `make test` draws a quarter.

`make test` always draws the same examples for a test, so that its result depends only on the change; `make soak` draws new ones
each time, keeps failures (`.hypothesis`) and tries them first the next time.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

IS_SOAK = bool(os.environ.get("TIDELOG_SOAK"))

DEFAULT = 100
"""If a test sets no number."""

LEAST = 10
"""The least that a quarter is, unless the test sets fewer."""


def drawn(count: int) -> int:
    """Return how many of `count` examples this run draws."""
    return count if IS_SOAK else max(-(-count // 4), min(count, LEAST))


def examples(count: int = DEFAULT, **others: Any) -> settings:
    """Return the settings of a test with `count` examples, without a deadline."""
    return settings(max_examples=drawn(count), deadline=None, **others)
