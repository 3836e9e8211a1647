"""`tidelog backup show BACKUP`: the topics and partitions of a point."""

from __future__ import annotations

import click

from tidelog.backup.backup import Backup
from tidelog.backup.layout import known_topic_id
from tidelog.backup.manifest import PartitionManifest, Point
from tidelog.cli.backup.rights import rights_fields, rights_lines
from tidelog.cli.backup.take import point_fields
from tidelog.cli.backup.target import backup_argument
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_bytes_size, show_time, table
from tidelog.cli.printing.output import print_lines
from tidelog.clock import SystemClock
from tidelog.formats import names
from tidelog.formats.partition_metadata import format_topic_id

_HEADER = ("topic", "partition", "topic id", "log start", "cut", "end", "size", "newest record")
_RIGHTS = {"acls": "ACLs", "scram_users": "SCRAM users"}


@click.command("show")
@backup_argument
@click.option("--point", metavar="N|TIME", help="A point's number, or the last point at or before a time. [default: the newest]")
@json_option
def command(backup: Backup, point: str | None, as_json: bool) -> None:
    """Show the contents of a point: each partition's offsets, the ACLs, quotas and SCRAM users, and the records that were
    removed before they could be backed up.

    Records from `cut` to `end` are in the backup, but their transactions may still be open, or may have ended in only some of
    their partitions.
    """
    found = backup.point_named(point, SystemClock())
    with backup.naming_expiry(found.sequence):
        _print(backup, found, as_json)


def _print(backup: Backup, found: Point, as_json: bool) -> None:
    catalog = backup.catalog(found)
    rights = backup.rights(found) or {}
    if as_json:
        print_lines([json_line({"type": "point", **point_fields(found)})])
        for entry in catalog.values():
            topic = backup.topic(entry)
            fields = {"type": "topic", "topic": topic.name, "topic_id": str(topic.topic_id), "settings": topic.settings}
            print_lines([json_line({**fields, "replication_factor": topic.replication_factor})])
            for partition in backup.partitions(topic).values():
                print_lines([json_line(_fields(partition))])
        print_lines(map(json_line, rights_fields(rights)))
        return
    rows = [
        [
            *(
                entry.name,
                one.partition,
                None if topic_id is None else format_topic_id(topic_id),
                one.log_start_offset,
                one.stable_offset,
                one.end_offset,
            ),
            *(show_bytes_size(one.size_bytes), show_time(one.max_time)),
        ]
        for entry in catalog.values()
        for topic_id in [known_topic_id(entry.topic_id)]
        for one in entry.partitions
    ]
    notices.print_line(f"point {found.sequence} of {show_time(found.taken_ms)}, from {found.source}")
    print_lines(table(_HEADER, rows, spare=("topic id",)))
    print_lines(rights_lines(rights))
    for text in found.incomplete:
        notices.note(f"not backed up: {text}")
    if not found.is_cut_consistent:
        notices.note("at the cut, some transactions may have ended in only some of their partitions")
    for what, reason in (rights.get("not_described") or {}).items():
        notices.note(f"{_RIGHTS.get(what, what)} are not in the backup: {reason}")
    for entry in catalog.values():
        for partition in backup.partitions(backup.topic(entry)).values():
            for gap in partition.gaps:
                place = names.log_dir_name(partition.topic, partition.partition)
                after = f", after {show_time(gap.after_time)}" if gap.after_time >= 0 else ""
                span = f"offsets {gap.start_offset} to {gap.end_offset}{after}"
                notices.note(f"{place}: {span}: {gap.reason}; noticed {show_time(gap.noticed_ms)}")


def _fields(partition: PartitionManifest) -> dict[str, object]:
    return {
        "type": "partition",
        "topic": partition.topic,
        **partition.ends._asdict(),
        "leader_epochs": partition.leader_epochs,
        "gaps": [gap._asdict() for gap in partition.gaps],
    }
