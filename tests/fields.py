"""Asserts on several fields of one thing, each by its name."""

from __future__ import annotations


def check_fields(found: object, **expected: object) -> None:
    """Assert that the fields named have these values; what differs is listed by name."""
    assert {name: getattr(found, name) for name in expected} == expected
