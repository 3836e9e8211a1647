"""Fixtures for the tests of scans."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Notices about missing indexes are not the point, and there may be thousands."""
    logger = logging.getLogger("tidelog")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
