"""`tidelog backup verify BACKUP`: checks every byte of a backup."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import click

from tidelog.backup.backup import Backup
from tidelog.backup.target import open_target
from tidelog.backup.verify import BackupReport, verify_backup
from tidelog.cli.backup.reports import report_of, report_options
from tidelog.cli.client_options import bucket_options, reached
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, show_number, show_time
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.cli.printing.terminal import stderr_is_terminal
from tidelog.clock import SystemClock
from tidelog.errors import CorruptDataError, NotFoundError, TidelogError
from tidelog.formats import names
from tidelog.times import format_time


@click.command("verify")
@click.argument("address", metavar="BACKUP", callback=reached)
@report_options
@bucket_options
@json_option
def command(address: str, report_file: str | None, sign_key: str | None, as_json: bool) -> None:
    """Check every point of a backup: that no object is missing, truncated, changed or swapped.

    Damage is listed with the topic, the offsets and times of the records, and the points that need them. The exit code is then 3.
    Records that the source removed before the backup could read them are reported as notes. `tidelog verify BACKUP` checks the
    batches, indexes and producer snapshots of a point, as in any data folder.
    """
    target = open_target(address)
    written = report_of(report_file, sign_key)
    with ProgressBar("verify", _size(address), answer_on_stdout=False) as bar:
        report = verify_backup(target, bar.advance)
    print_findings(report, as_json)
    if written is not None:
        partitions: list[dict[str, Any]] = []
        facts: dict[str, Any] = {"at": format_time(SystemClock().now_ms()), "backup": str(target), "backup_id": None}
        facts |= {"points": report.points, "files": report.files, "size_bytes": report.size_bytes}
        with contextlib.suppress(CorruptDataError, NotFoundError):  # Then that is a finding.
            partitions = _describe(Backup(target), facts)
        written.write("verify", facts, partitions, [str(one) for one in report.findings])
    if report.findings:
        raise click.exceptions.Exit(notices.INCOMPLETE)
    if not as_json:
        counts = f"{show_number(report.points, 'point')}, {show_number(report.files, 'data file')}"
        print_lines([f"whole: {counts}, {show_bytes_size(report.size_bytes)}"])


def print_findings(report: BackupReport, as_json: bool) -> None:
    """Print what is damaged, and a note for each range of records that the source removed before the backup could read them."""
    if as_json:
        print_lines(json_line({"type": "finding", **dataclasses.asdict(one)}) for one in report.findings)
        sums = {"points": report.points, "files": report.files, "bytes": report.size_bytes, "is_sound": not report.findings}
        print_lines([json_line({"type": "backup", **sums})])
    else:
        print_lines(one_line(str(one)) for one in report.findings)
    for (topic, partition), gaps in report.gaps.items():
        for gap in gaps:
            span = f"offsets {gap.start_offset} to {gap.end_offset}"
            notices.note(f"{names.log_dir_name(topic, partition)}: {span}: {gap.reason}, before {show_time(gap.noticed_ms)}")


def _describe(backup: Backup, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Add the backup's id and its newest point to `facts`, and return the point's partitions.

    A partition's SHA-256 is that of its manifest, which lists each of the partition's objects with the object's own SHA-256.
    Raises NotFoundError, CorruptDataError.
    """
    facts["backup_id"] = str(backup.head.backup_id)
    point = backup.point()
    facts |= {"point": point.sequence, "point_at": format_time(point.taken_ms)}
    return [
        {"topic": topic.name, **ends._asdict(), "sha256": topic.partitions[ends.partition]}
        for entry in backup.catalog(point).values()
        for topic in [backup.topic(entry)]
        for ends in entry.partitions
    ]


def _size(address: str) -> int:
    """Return about how many bytes will be read, for the progress bar; 0 if no bar will be shown, or if the size is unknown."""
    if not stderr_is_terminal():
        return 0
    try:
        backup = Backup(open_target(address))
        return backup.point().size_bytes
    except TidelogError:
        return 0
