"""`tidelog backup list BACKUP`: its points."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

import click

from tidelog.backup.backup import Backup
from tidelog.backup.manifest import Point
from tidelog.cli.backup.take import point_fields
from tidelog.cli.backup.target import backup_argument
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_bytes_size, show_count, show_time, table
from tidelog.cli.printing.output import print_lines
from tidelog.errors import CorruptDataError, PointExpiredError

_SHOWN = 20
_HEADER = ("point", "time", "topics", "partitions", "size", "written", "newest record", "cut", "not backed up", "gaps")


@click.command("list")
@backup_argument
@click.option("--all", "shows_all", is_flag=True, help=f"All points. [default: the newest {_SHOWN}]")
@json_option
def command(backup: Backup, shows_all: bool, as_json: bool) -> None:
    """List the points of a backup, the newest last.

    Each point holds the cluster as it was at that time, and can be read and restored. `written` is the size of what the point
    added to the backup. Exit code 3: a point is missing or cannot be read; the other points are listed.
    """
    missing = backup.missing_points()
    known = backup.points()
    shown = known if shows_all or as_json else known[-_SHOWN:]
    points: list[Point] = []
    damaged: list[CorruptDataError] = []
    for name in shown:
        try:
            points.append(backup.read_point(name))
        except PointExpiredError:
            continue  # It was removed since the points were listed.
        except CorruptDataError as error:
            damaged.append(error)
    if as_json:
        print_lines(json_line(point_fields(one)) for one in points)
    else:
        print_lines(_table(points, missing if len(shown) == len(known) else [one for one in missing if one > shown[0].sequence]))
        if len(shown) < len(known):
            notices.note(
                f"{len(known) - len(shown):,} older points, from {show_time(known[0].time_ms)} on, are not shown: to list them, "
                "add --all"
            )
    if missing:
        points_are = "point" if len(missing) == 1 else "points"
        notices.complain(f"missing from the backup: {points_are} {', '.join(map(str, missing))}; run `tidelog backup verify`")
    for one in damaged:
        notices.complain(f"a point cannot be read: {one}")
    if damaged or missing:
        raise click.exceptions.Exit(notices.INCOMPLETE)


def _table(points: list[Point], missing: list[int]) -> Iterable[str]:
    rows: list[list[object]] = [
        [
            one.sequence,
            show_time(one.taken_ms),
            *(show_count(one.topics), show_count(one.partitions), show_bytes_size(one.size_bytes)),
            *(show_bytes_size(one.written_bytes), show_time(one.max_time)),
            "consistent" if one.is_cut_consistent else "not proven",
            *(show_count(len(one.incomplete)), show_count(one.gaps)),
        ]
        for one in points
    ]
    rows += [[sequence, "missing", *[None] * (len(_HEADER) - 2)] for sequence in missing]
    rows.sort(key=itemgetter(0))
    return table(_HEADER, rows, spare=("written", "partitions"))
