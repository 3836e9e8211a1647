"""Reports records that are missing from a folder, in addition to the answer: a note and, for scripts, a JSON line for each; exit
code 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line
from tidelog.cli.printing.output import print_lines
from tidelog.reader.missing.missing_offsets import MissingOffsets, is_any_lost


def report_missing(missing: Sequence[MissingOffsets], *, as_json: bool) -> None:
    """Report missing records as notes; with --json also as lines of `type` `missing` after the answer."""
    for one in missing:
        notices.note(str(one))
    print_missing(missing, as_json=as_json)


def print_missing(missing: Sequence[MissingOffsets], *, as_json: bool) -> None:
    """Print only the JSON lines of `report_missing`, for a command that has already printed the notes."""
    if as_json:
        print_lines(json_line({"type": "missing", **one.fields()}) for one in missing)


def end_with_missing(missing: Sequence[MissingOffsets]) -> None:
    """Exit with code 3 if anything is missing."""
    if is_any_lost(missing):
        raise click.exceptions.Exit(notices.INCOMPLETE)
