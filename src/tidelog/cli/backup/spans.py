"""Spans of time in the options of `tidelog backup`."""

from __future__ import annotations

import click

from tidelog.cli.options import duration_ms


def parse_span(option: str, text: str) -> int:
    """Return an option's span in milliseconds. Raises a UsageError, also for digits alone.

    In other options, digits alone are milliseconds. As milliseconds, `--keep 30` would remove all points but the newest, and
    `--every 5` would leave no pause between points.
    """
    if text.strip().isdigit():
        raise click.UsageError(f"{option} {text} has no unit: expected {option} {text}d, {text}h, {text}m or {text}s.")
    return duration_ms(option, text)


def checked_span(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the value of an option, unless `parse_span` raises an error: a callback of click, which runs before a backup is
    opened.
    """
    parse_span(param.opts[0], value)
    return value
