"""`tidelog backup diff BACKUP OLD [NEW]`: what has changed between two points."""

from __future__ import annotations

import uuid

import click

from tidelog.backup.backup import Backup
from tidelog.backup.compare import RECREATED, Difference, compare
from tidelog.backup.layout import known_topic_id
from tidelog.cli.backup.target import backup_argument
from tidelog.cli.options import json_option
from tidelog.cli.printing.layout import json_line, table
from tidelog.cli.printing.output import print_lines
from tidelog.clock import SystemClock
from tidelog.formats.partition_metadata import format_topic_id

_HEADER = ("topic", "partition", "what", "appended", "removed", "before", "after")


@click.command("diff")
@backup_argument
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", required=False)
@json_option
def command(backup: Backup, old: str, new: str | None, as_json: bool) -> None:
    """Show what has changed from the point OLD to the point NEW. A point is given by number or by time; NEW is the newest by
    default.

    `appended` counts offsets added at the end. `removed` counts offsets that the source no longer had.
    """
    clock = SystemClock()
    points = backup.point_named(old, clock), backup.point_named(new, clock)
    with backup.naming_expiry(*(one.sequence for one in points)):
        found = list(compare(backup, *points))
    if as_json:
        print_lines(json_line(one._asdict()) for one in found)
        return
    if not found:
        print_lines(["no difference"])
        return
    rows = [
        [one.topic, one.partition, one.what, one.appended or None, one.removed or None, *_before_and_after(one)] for one in found
    ]
    print_lines(table(_HEADER, rows, spare=("before", "after")))


def _before_and_after(one: Difference) -> tuple[str | None, ...]:
    """Return the values as people read them: topic ids as Kafka's tools print them."""
    if one.what != RECREATED:
        return one.before, one.after
    ids = [known_topic_id(uuid.UUID(text)) for text in (one.before, one.after) if text is not None]
    return tuple(None if known is None else format_topic_id(known) for known in ids)
