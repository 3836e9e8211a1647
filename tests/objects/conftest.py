"""Kafka's folders as objects: each codec once. Other folders differ only within their batches, whose bytes are the same.

`make soak` has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples import IS_SOAK

AGAIN = {Path(__file__).with_name(f"test_{name}_golden.py") for name in ("reader", "sources")}
"""Tests of local folders that are run again: tests/reader/test_golden.py, tests/sources/test_golden.py."""

LEFT_OUT = re.compile(r"-(v[01]-(lz4|snappy)-|v\d-\w+-lat)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_SOAK:
        return
    left_out = [item for item in items if item.path in AGAIN and LEFT_OUT.search(item.name)]
    items[:] = [item for item in items if not (item.path in AGAIN and LEFT_OUT.search(item.name))]
    config.hook.pytest_deselected(items=left_out)
