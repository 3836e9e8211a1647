"""`tidelog verify DIR [TOPIC...]`: checks that a data folder is complete and undamaged. `--replicas` compares several
(`verify_replicas`).

Missing and damaged data is listed on standard output, followed by a table of the partitions; unusual but correct findings are
noted on stderr. With `--json` everything is output as lines for scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from tidelog.backup.opening import folder_at, folders_at
from tidelog.check.finding import Finding
from tidelog.check.folder_indexes import VerifyOptions
from tidelog.check.folder_verify import FolderReport, PartitionReport, verify_folder
from tidelog.check.partitions import checked_time_map_dir
from tidelog.check.remote_segments import verify_remote
from tidelog.cli.client_options import bucket_options
from tidelog.cli.index_options import interval_option, jobs_option, time_map_dir_option
from tidelog.cli.options import folders_argument, json_option, suggest
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, show_count, table
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar, size_of
from tidelog.cli.printing.terminal import stderr_is_terminal
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.formats.paths.file_path import FilePath, log_files
from tidelog.model import TopicPartition
from tidelog.objects.tier import is_tiered, parse_tiered
from tidelog.processors import processors
from tidelog.reader.log_dirs import LogDirs
from tidelog.reader.tiered.tiered_log_dir import TieredLogDir, open_log_dir


@click.command("verify")
@folders_argument
@click.argument("rest", metavar="[TOPIC...]", nargs=-1, shell_complete=suggest("topics"))
@click.option("--replicas", is_flag=True, help="Compare the replicas in several data folders: verify --replicas DIR DIR...")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=suggest("topics"),
    help="Only this topic; may be repeated.",
)
@interval_option
@time_map_dir_option
@jobs_option
@json_option
@bucket_options
def command(
    directory: str,
    rest: tuple[str, ...],
    replicas: bool,
    topics: tuple[str, ...],
    interval_bytes: int | None,
    time_map_dir: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Check that a data folder is complete and undamaged: all of it, or some topics.

    The command checks every batch, index entry and time map, the checkpoints, leader epochs and producer snapshots. It finds gaps
    between segments, records missing at the start or end of a log, and partitions that are missing although the checkpoints or
    the cluster's metadata list them. A broker may be running. Exit code 3 if something is missing or damaged.

    With --replicas the arguments are the data folders of several brokers: each partition that at least two of them have is
    compared, byte for byte, up to the smallest high watermark. Exit code 3 if replicas differ.
    """
    if replicas:
        from tidelog.cli.commands.verify_replicas import compare_folders

        if interval_bytes is not None or time_map_dir is not None:
            raise click.UsageError("--replicas compares batches: --interval and --time-map-dir do not apply.")
        if not rest:
            raise click.UsageError("--replicas needs at least two data folders: verify --replicas DIR DIR...")
        if not compare_folders((directory, *rest), topics, jobs or processors(), as_json=as_json):
            raise click.exceptions.Exit(notices.INCOMPLETE)
        return
    wanted = (*rest, *topics)
    folders = folders_at(parse_tiered(directory).folders if is_tiered(directory) else directory)
    parts = (part for folder in folders for part in folder.iterdir() if part.is_dir()) if stderr_is_terminal() else ()
    logs = (log for part in parts for log in log_files(part))
    size_bytes = size_of(log for log in logs if not wanted or log.parent.name.rpartition("-")[0] in wanted)
    with ProgressBar("verify", size_bytes, answer_on_stdout=False) as bar:
        options = VerifyOptions(interval_bytes, checked_time_map_dir(time_map_dir), jobs or processors(), bar.advance)
        reports = list(_reports(folders, wanted, options))
        if is_tiered(directory):
            reports = _with_remote(directory, wanted, reports)
    print_lines(line for _, report in reports for line in _finding_lines(report.all_findings(), as_json))
    partitions = [one for _, report in reports for one in report.partitions]
    if as_json:
        print_lines(map(_json_partition, partitions))
        print_lines(json_line({"type": "folder", "path": str(path), "is_sound": one.is_sound}) for path, one in reports)
    else:
        print_lines(table(_HEADER, map(_cells, partitions), spare=("topic id", "log start", "segments")))
    if not all(report.is_sound for _, report in reports):
        raise click.exceptions.Exit(notices.INCOMPLETE)


def _with_remote(
    address: str, topics: tuple[str, ...], reports: list[tuple[FilePath, FolderReport]]
) -> list[tuple[FilePath, FolderReport]]:
    """Return the reports, and a report of the remote segments. Records that are missing at the start of a tiered partition are
    left to the report of the remote segments.
    """
    log_dir = open_log_dir(address)
    assert isinstance(log_dir, TieredLogDir)
    for _, report in reports:
        for one in report.partitions:
            is_remote = log_dir.is_remote(TopicPartition(one.topic, one.partition))
            one.findings = [
                finding
                for finding in one.findings
                if not (is_remote and finding.missing is not None and finding.missing.kind == "head")
            ]
    return [*reports, (folder_at(log_dir.tier.address), FolderReport(log_dir.path, [], verify_remote(log_dir, topics)))]


def _reports(
    folders: Sequence[FilePath], topics: tuple[str, ...], options: VerifyOptions
) -> Iterator[tuple[FilePath, FolderReport]]:
    """Yield the report of each folder. If there are several folders, some may have no partition, or none of the topics."""
    if len(folders) == 1:
        yield folders[0], verify_folder(folders[0], topics, options)
        return
    known = LogDirs(folders)
    for topic in topics:
        known.partitions(topic)
    for folder in known.folders:
        here = folder.topics()
        mine = [topic for topic in topics if topic in here]
        if here and (mine or not topics):
            yield folder.path, verify_folder(folder.path, mine, options)
        elif not here:
            notices.note(f"{folder.path}: the folder has no partitions")


def _finding_lines(findings: Iterable[Finding], as_json: bool) -> Iterator[str]:
    for finding in findings:
        if as_json:
            yield json_line(finding.fields())
        elif finding.is_fault:
            yield one_line(f"{finding.kind}: {finding}")
        else:
            notices.note(str(finding))


_HEADER = ("topic", "partition", "topic id", "segments", "size", "log start", "log end", "missing", "faults")


def _counts(one: PartitionReport) -> tuple[int, int]:
    kinds = [finding.kind for finding in one.findings]
    return kinds.count("missing"), kinds.count("fault")


def _cells(one: PartitionReport) -> list[object]:
    verified = one.verified
    segments, size = (None, None) if verified is None else (verified.segments, show_bytes_size(verified.size_bytes))
    topic_id = None if one.topic_id is None else format_topic_id(one.topic_id)
    return [
        *(one.topic, one.partition, topic_id, show_count(segments), size, one.log_start_offset, one.log_end_offset),
        *map(show_count, _counts(one)),
    ]


def _json_partition(one: PartitionReport) -> str:
    verified = one.verified
    missing, faults = _counts(one)
    return json_line(
        {
            "type": "partition",
            "topic": one.topic,
            "partition": one.partition,
            "topic_id": None if one.topic_id is None else format_topic_id(one.topic_id),
            "segments": None if verified is None else verified.segments,
            "bytes": None if verified is None else verified.size_bytes,
            "log_start_offset": one.log_start_offset,
            "log_end_offset": one.log_end_offset,
            "missing": missing,
            "faults": faults,
        }
    )
