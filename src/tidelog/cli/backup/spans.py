"""Spans of time in the options of `tidelog backup`."""

from __future__ import annotations

import click

from tidelog.times import parse_duration


def parse_span(option: str, text: str) -> int:
    """Return an option's span in milliseconds. Raises a UsageError for digits alone.

    They are milliseconds elsewhere. Here `--keep 30` would remove the backups of a month, and `--every 5` never rest.
    """
    if text.strip().isdigit():
        raise click.UsageError(f"{option} {text} has no unit: {option} {text}d, {text}h, {text}m or {text}s.")
    return parse_duration(text)
