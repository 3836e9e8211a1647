"""Assertions on several named fields of one object."""

from __future__ import annotations


def check_fields(found: object, **expected: object) -> None:
    """Assert that the named fields have these values; differences are listed by name."""
    assert {name: getattr(found, name) for name in expected} == expected
