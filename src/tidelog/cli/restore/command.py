"""`tidelog restore BACKUP --to DIR|HOST:PORT [--until TIME]`: restores a backup, up to a time, into a folder or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.backup.reports import report_of, report_options
from tidelog.cli.client_options import Decorated, bucket_options, config_option, reached, reached_by
from tidelog.cli.lean_imports import lean_imports
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import check_brokers, json_option
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_count, table
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.cli.time_options import Moment, TimeType, echo_moment, run_clock, time_zone_option
from tidelog.clock import SystemClock
from tidelog.times import format_time
from tidelog.user_folders import state_folder

if TYPE_CHECKING:
    from tidelog.copying.spreading import Partitioner
    from tidelog.restore.cuts import RestorePlan
    from tidelog.restore.restoring import RestoreReport
    from tidelog.restore.result import RestoredPartition


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for old, equals, new in pairs:
        if not old or not equals or not new:
            raise click.BadParameter(f"{old + equals + new!r} is not {param.metavar}.", ctx, param)
    return {old: new for old, _, new in pairs}


def _counts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    pairs = _pairs(ctx, param, values)
    for topic, count in pairs.items():
        if not (count.isascii() and count.isdigit() and 0 < int(count) < 2**31):
            raise click.BadParameter(f"{count!r} is not a valid number of partitions for {topic}.", ctx, param)
    return {topic: int(count) for topic, count in pairs.items()}


_REQUEST = (
    bucket_options,
    click.argument("backup", metavar="BACKUP", callback=reached),
    config_option("to"),
    click.option(
        "--to",
        "target",
        metavar="DIR|HOST:PORT",
        required=True,
        callback=reached_by("to"),
        help="The folder or cluster to restore into.",
    ),
    click.option("--until", "until", type=TimeType(), help="Restore what came before this time. [default: the whole point]"),
    click.option("--from", "start", type=TimeType(), help="Leave out what came before this time. [default: nothing]"),
    time_zone_option,
    click.option(
        "--by",
        "order",
        type=click.Choice(["append", "time"]),
        default="append",
        show_default=True,
        help="append: end each partition before its first record at or after --until. "
        "time: keep every older record, including late records.",
    ),
    click.option(
        "--point",
        type=click.IntRange(1, 2**63 - 1),
        metavar="N",
        help="Restore from this point. [default: chosen by --until and --by]",
    ),
    click.option(
        "--topics", multiple=True, metavar="TOPIC", help="Names, or patterns such as order*; may be repeated. [default: all]"
    ),
    click.option(
        "--except",
        "excepted",
        multiple=True,
        metavar="TOPIC",
        help="Topics not to restore: names or patterns; may be repeated.",
    ),
    click.option(
        "--rename",
        "renames",
        multiple=True,
        metavar="OLD=NEW",
        callback=_pairs,
        help="A different name for a topic in the target; may be repeated.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs,
        help="A setting of the restored topics, e.g. retention.ms=-1; may be repeated.",
    ),
    click.option(
        "--partitions",
        multiple=True,
        metavar="TOPIC=N",
        callback=_counts,
        help="A different number of partitions, chosen by the records' keys; may be repeated. Clusters only.",
    ),
    click.option(
        "--partitioner",
        type=click.Choice(["murmur2", "crc32"]),
        help="With --partitions: murmur2, as in Kafka's Java producers, or crc32, as in librdkafka. [default: murmur2]",
    ),
    click.option(
        "--groups", multiple=True, metavar="GROUP", help="Restore the committed offsets of these groups only. [default: all]"
    ),
    click.option("--no-groups", is_flag=True, help="Do not restore the committed offsets of groups."),
    click.option("--into-existing", is_flag=True, help="With a cluster: append to topics that already have records."),
    click.option("--no-verify", is_flag=True, help="Do not verify the target by reading back what was written."),
    click.option(
        "--work",
        metavar="DIR",
        type=LocalPath(),
        help="With a cluster: folder for the offset maps. [default: in the home directory]",
    ),
)


def request_options(function: Decorated) -> Decorated:
    """Add the options that say what to restore, where to, and how."""
    for option in reversed(_REQUEST):
        function = option(function)
    return function


@dataclass(frozen=True)
class Wanted:
    """A planned restore, and the options for carrying it out."""

    plan: RestorePlan
    work: Path
    verify: bool


def planned(
    *,
    backup: str,
    target: str,
    until: Moment | None,
    start: Moment | None,
    order: str,
    point: int | None,
    topics: tuple[str, ...],
    excepted: tuple[str, ...],
    renames: dict[str, str],
    settings: dict[str, str],
    partitions: dict[str, int],
    partitioner: Partitioner | None,
    groups: tuple[str, ...],
    no_groups: bool,
    into_existing: bool,
    no_verify: bool,
    work: str | None,
) -> Wanted:
    """Plan the restore that the options of `request_options` describe, print the plan's notes, and return the plan. Raises
    UsageError and the errors of `plan_restore`.
    """
    if no_groups and groups:
        raise click.UsageError("--groups and --no-groups cannot be combined.")
    if partitioner is not None and not partitions:
        raise click.UsageError("--partitioner needs --partitions.")
    if work is not None:
        check_brokers(target, "--work needs a cluster: a restore into a folder has no offset maps, because it keeps offsets.")
    echo_moment(start)
    echo_moment(until)
    from tidelog.restore.cuts import plan_restore
    from tidelog.restore.request import RestoreRequest
    from tidelog.restore.restoring import work_folder
    from tidelog.restore.retention import soon_removed

    request = RestoreRequest(
        backup=backup,
        target=target,
        until_ms=None if until is None else until.time_ms,
        from_ms=None if start is None else start.time_ms,
        order="time" if order == "time" else "append",
        point=point,
        topics=topics,
        excepted=excepted,
        renames=renames,
        settings=settings,
        partitions=partitions,
        partitioner=partitioner or "murmur2",
        groups=() if no_groups else groups or None,
        into_existing=into_existing,
    )
    plan = plan_restore(request)
    for text in (*plan.notes, *soon_removed(plan, SystemClock().now_ms())):
        notices.note(text)
    return Wanted(plan, Path(work) if work is not None else work_folder(plan, state_folder() / "restore"), not no_verify)


@click.command()
@request_options
@report_options
@click.option("--dry-run", is_flag=True, help="Show what would be restored, and whether the target would accept it.")
@json_option
def command(report_file: str | None, sign_key: str | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Restore a backup, up to a time: into a data folder that Kafka can open, or into a running cluster.

    In a folder, records keep their offsets and leader epochs. In a cluster they get new offsets, and the committed offsets of
    groups are translated. Transactions that were open at that time are left out. A topic that already exists in the folder is
    refused, and so is a topic that has records in the cluster, without --into-existing.

    After a crash, run the same command again: nothing is restored twice. Exit code 3: what was read back differs from the backup.
    """
    with lean_imports():
        from tidelog.restore.restoring import refuse_target, restore

    written = report_of(report_file, sign_key)
    wanted = planned(**options)
    plan = wanted.plan
    if dry_run:
        refuse_target(plan, wanted.work)
        print_lines(_plan_json(plan) if as_json else _plan_lines(plan))
        return
    run_clock(click.get_current_context())
    total = sum(cut.size for topic in plan.topics for cut in topic.partitions)
    with ProgressBar("restoring", total, answer_on_stdout=False) as bar:
        report = restore(plan, SystemClock(), work=wanted.work, progress=bar.advance, verify=wanted.verify)
    if written is not None:
        written.write("restore", _facts(plan, report), [_fields(report, one) for one in report.partitions], report.differences)
    print_restored(report, as_json)


def print_restored(report: RestoreReport, as_json: bool) -> None:
    """Print what was restored. Exit with code 3 if what was read back differs from the backup."""
    for group, why in report.left_alone.items():
        notices.note(f"group {group}: {why}")
    for text in report.notes:
        notices.note(text)
    print_lines(_report_json(report) if as_json else _report_lines(report))
    for difference in report.differences:
        notices.complain(f"differs from the backup: {difference}")
    if report.differences:
        raise click.exceptions.Exit(notices.INCOMPLETE)


def _plan_lines(plan: RestorePlan) -> Iterator[str]:
    yield f"point {plan.point.sequence} of {format_time(plan.point.taken_ms)}"
    yield from table(
        ("topic", "to", "partition", "from offset", "to offset", "late records", "open transactions"),
        (
            (
                topic.source,
                topic.name,
                cut.partition,
                cut.start_offset,
                cut.end_offset,
                show_count(cut.late_records),
                len(cut.left_out) + len(cut.committed),
            )
            for topic in plan.topics
            for cut in topic.partitions
        ),
    )


def _plan_json(plan: RestorePlan) -> Iterator[str]:
    for topic in plan.topics:
        for cut in topic.partitions:
            yield json_line(
                {
                    "type": "partition",
                    "topic": topic.source,
                    "target_topic": topic.name,
                    "partition": cut.partition,
                    "point": topic.sequence,
                    "start_offset": cut.start_offset,
                    "end_offset": cut.end_offset,
                    "late_records": cut.late_records,
                    "transactions_left_out": len(cut.left_out),
                }
            )


def _report_lines(report: RestoreReport) -> Iterator[str]:
    rows = [
        (
            one.target.topic,
            one.target.partition,
            "-" if (count := _records(report, one)) is None else show_count(count),
            "-" if one.end_offset is None else one.end_offset,
            show_count(one.late_records),
            "as in the backup" if one.target in report.digests else "-",
        )
        for one in report.partitions
    ]
    yield from table(("topic", "partition", "records", "end offset", "late records", "read back"), rows)
    if report.groups:
        yield ""
        yield f"offsets set for the groups {', '.join(sorted(report.groups))}"


def _facts(plan: RestorePlan, report: RestoreReport) -> dict[str, Any]:
    request = plan.request
    return {
        "at": format_time(SystemClock().now_ms()),
        "backup": request.backup,
        "backup_id": plan.backup_id,
        "point": plan.point.sequence,
        "point_at": format_time(plan.point.taken_ms),
        "target": request.target,
        "until": None if request.until_ms is None else format_time(request.until_ms),
        "from": None if request.from_ms is None else format_time(request.from_ms),
        "by": request.order,
        "groups": sorted(report.groups),
        "groups_left_alone": report.left_alone,
        "is_read_back": bool(report.digests or report.differences),
        "notes": [*plan.notes, *report.notes],
    }


def _records(report: RestoreReport, one: RestoredPartition) -> int | None:
    """Return the number of restored records. Records of aborted transactions are excluded if the records were read back."""
    digest = report.digests.get(one.target)
    return one.records if digest is None else digest.records


def _fields(report: RestoreReport, one: RestoredPartition) -> dict[str, Any]:
    digest = report.digests.get(one.target)
    return {
        "topic": one.target.topic,
        "partition": one.target.partition,
        "source_topic": one.source.topic,
        "start_offset": one.start_offset,
        "records": _records(report, one),
        "end_offset": one.end_offset,
        "size_bytes": one.size_bytes,
        "late_records": one.late_records,
        "transactions_left_out": one.transactions_left_out,
        "sha256": None if digest is None else digest.sha256,
    }


def _report_json(report: RestoreReport) -> Iterator[str]:
    for one in report.partitions:
        yield json_line({"type": "partition", **_fields(report, one)})
    for group, offsets in sorted(report.groups.items()):
        for key, offset in sorted(offsets.items()):
            yield json_line({"type": "group", "group": group, "topic": key.topic, "partition": key.partition, "offset": offset})
    for difference in report.differences:
        yield json_line({"type": "difference", "text": difference})
