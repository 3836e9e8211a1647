"""`tidelog backup verify BACKUP`: every byte of it."""

from __future__ import annotations

import dataclasses

import click

from tidelog.backup.backup import Backup
from tidelog.backup.target import open_target
from tidelog.backup.verify import verify_backup
from tidelog.cli.client_options import bucket_options, reached
from tidelog.cli.options import json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, show_time
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.cli.printing.terminal import stderr_is_terminal
from tidelog.errors import TidelogError
from tidelog.formats import names


@click.command("verify")
@click.argument("address", metavar="BACKUP", callback=reached)
@bucket_options
@json_option
def command(address: str, as_json: bool) -> None:
    """Check that a backup is whole: that no object is missing, cut short, changed, or another one, for every point.

    Prints what is damaged, with the topic, the offsets and the times of the records, and the points that need them; exit code 3
    then. Records that were removed from the source before the backup could read them are notes. `tidelog verify BACKUP` checks
    the batches, indexes and producer snapshots of a point, as those of any data folder.
    """
    target = open_target(address)
    with ProgressBar("verify", _size(address), answer_on_stdout=False) as bar:
        report = verify_backup(target, bar.advance)
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
    if report.findings:
        raise click.exceptions.Exit(notices.INCOMPLETE)
    if not as_json:
        print_lines([f"whole: {report.points:,} points, {report.files:,} files, {show_bytes_size(report.size_bytes)}"])


def _size(address: str) -> int:
    """Return about how much will be read, for the progress bar."""
    if not stderr_is_terminal():
        return 0
    try:
        backup = Backup(open_target(address))
        return backup.point().size_bytes
    except TidelogError:
        return 0
