"""`tidelog backup HOST:PORT|DIR TARGET`: takes a point, or with `--follow` points repeatedly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from tidelog.backup.manifest import Point
from tidelog.backup.target import Target, open_target
from tidelog.capture.capture import Capture, Selection
from tidelog.capture.capture_source import CaptureSource
from tidelog.capture.figures import Figures
from tidelog.capture.following import follow
from tidelog.cli.backup.spans import parse_span
from tidelog.cli.client_options import Decorated
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import json_option, source_argument
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_bytes_size, show_time
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.cli.printing.terminal import stderr_is_terminal
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from tidelog.objects.address import is_object_address
from tidelog.sources.opening import kind_of, open_source

TIMEOUT_MS = 30_000
EVERY = "60s"


_SELECTION = (
    click.option(
        "--topics", "patterns", multiple=True, metavar="NAME", help="Only these topics: names, or patterns; may be repeated."
    ),
    click.option("--internal", is_flag=True, help="Also back up Kafka's other internal topics, such as __transaction_state."),
    click.option("--no-groups", is_flag=True, help="Leave out __consumer_offsets, which holds the groups' committed offsets."),
    click.option(
        "--target-config", metavar="FILE", type=LocalPath(), help="A properties file with the options of TARGET's bucket."
    ),
)


def selection_options(function: Decorated) -> Decorated:
    """Add the options that say what to back up, and how to reach the target."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def selection_of(
    source: str, target: str, patterns: tuple[str, ...], internal: bool, no_groups: bool, target_config: str | None
) -> tuple[Target, Selection]:
    """Return the target, and the selection of what to back up. Raises UsageError for a target within the source."""
    place = open_target(_with_options(target, target_config))
    _refuse_inside(source, place)
    return place, Selection([name for one in patterns for name in one.split(",") if name], internal, not no_groups)


@click.command("take")
@source_argument
@click.argument("target", metavar="TARGET")
@selection_options
@click.option("--follow", "follows", is_flag=True, help="Keep taking points until interrupted.")
@click.option("--every", metavar="TIME", help="With --follow: the time between points.  [default: 60s]")
@click.option("--metrics-file", metavar="FILE", type=LocalPath(), help="Write Prometheus metrics to FILE after each point.")
@json_option
def command(
    source: str,
    target: str,
    patterns: tuple[str, ...],
    internal: bool,
    no_groups: bool,
    follows: bool,
    every: str | None,
    metrics_file: str | None,
    target_config: str | None,
    as_json: bool,
) -> None:
    """Take a point of a backup: read what is new in DIR or HOST:PORT since the last point, and add it to TARGET.

    TARGET is a folder or a bucket; the first point creates the backup. After an interruption the next run continues.
    Exit code 3: a point was taken, but some partitions are missing or could not be read, or records had been removed before they
    could be read. Notes name them.
    """
    if every is not None and not follows:
        raise click.UsageError("--every needs --follow: without it, one point is taken.")
    every_ms = parse_span("--every", every or EVERY)
    if every_ms < 1:
        raise click.UsageError(f"--every {every} is not positive: expected a time such as 30s or 5m.")
    if metrics_file is not None and not Path(metrics_file).absolute().parent.is_dir():
        raise click.UsageError(f"--metrics-file {metrics_file}: its folder does not exist.")
    place, selection = selection_of(source, target, patterns, internal, no_groups, target_config)
    figures = Figures(None if metrics_file is None else Path(metrics_file))
    clock = SystemClock()
    complete = True
    with contextlib.closing(_opened(source)) as opened, _progress(source, place, follows) as bar:
        capture = Capture(opened, place, clock, selection, bar.advance)
        points: Iterator[Point]
        if follows:
            points = follow(capture, clock, every_ms, threading.Event().wait, figures)
        else:
            points = iter([figures.taken(capture.take(), clock.now_ms())])
        for point in points:
            bar.hide()
            report_point(point, as_json)
            complete = not point.gaps and not point.incomplete
    if not complete:
        raise click.exceptions.Exit(notices.INCOMPLETE)


def _opened(source: str) -> CaptureSource:
    if kind_of(source).is_cluster:
        from tidelog.capture.broker_capture import BrokerCapture

        return BrokerCapture(source, TIMEOUT_MS)
    from tidelog.capture.folder_capture import FolderCapture

    return FolderCapture(source)


def _with_options(target: str, file: str | None) -> str:
    if file is None:
        return target
    if not is_object_address(target):
        raise click.UsageError(f"--target-config has the options of a bucket, but {target} is a folder.")
    from tidelog.objects.address import with_options
    from tidelog.properties_file import read_properties_file

    return with_options(target, read_properties_file(file))


def _refuse_inside(source: str, target: Target) -> None:
    """Raise a UsageError if the target is inside the data folder that is to be backed up."""
    kind = kind_of(source)
    if kind.is_local and Path(str(target)).resolve().is_relative_to(Path(source).resolve()):
        raise click.UsageError(f"the backup folder {target} is inside the data folder {source}: choose a target outside it.")


def _progress(source: str, target: Target, follows: bool) -> ProgressBar:
    """Return a progress bar for the first point, which reads everything. In all other cases, return a bar that shows nothing."""
    total = 0
    if stderr_is_terminal() and not follows and next(iter(target.list("points")), None) is None:
        with open_source(source) as opened:
            keys = [TopicPartition(topic, number) for topic, numbers in opened.topics().items() for number in numbers]
            total = sum(opened.sizes(keys).values())
    return ProgressBar("backup", total, answer_on_stdout=False) if total else _NoBar("backup", 0)


class _NoBar(ProgressBar):
    """A progress bar that shows nothing, because the total is unknown."""

    def advance(self, done_bytes: int, records: int = 0) -> None:
        self.done_bytes += done_bytes


def report_point(point: Point, as_json: bool) -> None:
    """Print a point that was taken."""
    for text in point.incomplete:
        notices.note(f"not backed up in point {point.sequence}: {text}")
    if point.gaps:
        what = "1 gap" if point.gaps == 1 else f"{point.gaps} gaps"
        notices.note(
            f"point {point.sequence}: {what}: records were removed before they could be backed up; to list them, run "
            "`tidelog backup show`"
        )
    if as_json:
        print_lines([json_line(point_fields(point))])
    else:
        size, written = show_bytes_size(point.size_bytes), show_bytes_size(point.written_bytes)
        topics = f"{point.topics} topic{'' if point.topics == 1 else 's'}"
        text = f"{topics}, {point.partitions} partition{'' if point.partitions == 1 else 's'}, {size}, {written} written"
        print_lines([f"point {point.sequence}, {show_time(point.taken_ms)}: {text}"])


def point_fields(point: Point) -> dict[str, object]:
    """Return a point as a JSON object."""
    return {**point._asdict(), "backup_id": str(point.backup_id), "incomplete": list(point.incomplete)}
