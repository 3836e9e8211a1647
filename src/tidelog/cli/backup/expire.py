"""`tidelog backup expire BACKUP --keep 30d`: removes old points."""

from __future__ import annotations

import click

from tidelog.backup.backup import Backup
from tidelog.backup.expire import expire
from tidelog.cli.backup.spans import checked_span, parse_span
from tidelog.cli.backup.target import backup_argument
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_bytes_size, show_number
from tidelog.cli.printing.output import print_lines
from tidelog.clock import SystemClock


@click.command("expire")
@backup_argument
@click.option(
    "--keep", metavar="TIME", required=True, callback=checked_span, help="Keep points that are newer than this: 30d, 12h."
)
@click.option(
    "--grace",
    metavar="TIME",
    callback=checked_span,
    default="24h",
    show_default=True,
    help="How long to keep objects that belong to no point: a running backup may be writing them.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
def command(backup: Backup, keep: str, grace: str, dry_run: bool, as_json: bool) -> None:
    """Remove points older than --keep, and the objects that only those points need. The newest point always stays.

    The command may be interrupted at any time; the next run continues. A backup may run at the same time.
    """
    now_ms = SystemClock().now_ms()
    keep_ms, grace_ms = parse_span("--keep", keep), parse_span("--grace", grace)
    done = expire(backup, now_ms - keep_ms, now_ms, grace_ms=grace_ms, dry_run=dry_run)
    if as_json:
        fields: dict[str, object] = {
            "points": [one.sequence for one in done.points],
            "objects": done.objects,
            "bytes": done.size_bytes,
        }
        fields |= {"waiting_objects": done.waiting_objects, "waiting_bytes": done.waiting_bytes}
        print_lines([json_line({**fields, "kept_points": done.kept_points, "dry_run": dry_run})])
        return
    verb = "would remove" if dry_run else "removed"
    objects = show_number(done.objects, "object")
    what = f"{show_number(len(done.points), 'point')}, {objects}, {show_bytes_size(done.size_bytes)}"
    print_lines([f"{verb} {what}; kept {show_number(done.kept_points, 'point')}"])
    if done.waiting_objects:
        waiting = f"{show_number(done.waiting_objects, 'object')} ({show_bytes_size(done.waiting_bytes)})"
        notices.note(f"kept {waiting} that no point needs and that are newer than --grace {grace}: a later run removes them")
