"""`tidelog index verify DIR [TOPIC]` and `tidelog index rebuild DIR [TOPIC]`: check indexes against the logs, or rebuild them.

Tidelog uses indexes only as hints: its answers are right even if indexes are wrong. Kafka trusts its indexes. `verify` compares
every entry with the log and looks for missing entries. `rebuild` writes indexes and time maps from the logs, which are only read.
Without --out, `rebuild` needs the folder's lock, which a running broker holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import click

from tidelog.check.finding import Finding
from tidelog.check.folder_indexes import RebuildOptions, VerifyOptions, rebuild_partitions, verify_partitions
from tidelog.check.index_files import RebuiltFile
from tidelog.check.partitions import (
    CheckedPartition,
    PartitionToVerify,
    RebuiltPartition,
    VerifiedPartition,
    checked_out_dir,
    checked_time_map_dir,
    partitions_to_verify,
    select_partitions,
)
from tidelog.cli.client_options import bucket_options
from tidelog.cli.index_options import interval_option, jobs_option, out_option, time_map_dir_option, time_maps_option
from tidelog.cli.lazy_group import NamedGroup
from tidelog.cli.options import directory_argument, json_option, optional_topic
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, show_count, table
from tidelog.cli.printing.missing import end_with_missing, report_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar, size_of
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.paths.file_path import local_path, log_files
from tidelog.processors import processors
from tidelog.reader.log_dir import LogDir

FAULTS_FOUND = 1
"""The exit code of a run that found a fault."""


@click.group("index", cls=NamedGroup)
def command() -> None:
    """Compare the indexes and time maps of a data folder with its logs, or rebuild them."""


@command.command("verify", short_help="Check that every index is correct and complete.")
@directory_argument
@optional_topic
@interval_option
@time_map_dir_option
@jobs_option
@json_option
@bucket_options
def verify(
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    interval_bytes: int | None,
    time_map_dir: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Check that the offset, time and transaction indexes and the time maps are correct and complete.

    Every entry is compared with the log, and a missing entry is a fault. Entries that older releases of Kafka wrote by different
    rules are correct, and are reported as notes. A broker may be running: the indexes of its last segments may be preallocated,
    and may lack their last entry. Exit code 1 if there is a fault. Exit code 3 if there is none, but something is missing from
    the folder; `tidelog verify` checks that in detail.
    """
    time_maps = checked_time_map_dir(time_map_dir)
    log_dir = LogDir(directory)
    wanted = select_partitions(log_dir, topic, partitions)
    verified = []
    with _Walk("verify", log_dir, wanted) as walk:
        options = VerifyOptions(interval_bytes, time_maps, jobs or processors(), walk.advance)
        for one in verify_partitions(walk.partitions(), options):
            verified.append(one)
            walk.print(_finding_lines(one, as_json))
    missing = log_dir.missing(topic, partitions)
    print_lines(
        map(_json_verified, verified) if as_json else table(_VERIFIED_HEADER, map(_verified_cells, verified), spare=_SPARE)
    )
    report_missing(missing, as_json=as_json)
    if any(one.faults for one in verified):
        raise click.exceptions.Exit(FAULTS_FOUND)
    end_with_missing(missing)


@command.command("rebuild", short_help="Build every index from the logs.")
@directory_argument
@optional_topic
@out_option
@interval_option
@time_maps_option
@jobs_option
@json_option
@bucket_options
def rebuild(
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    out_dir: str | None,
    interval_bytes: int | None,
    time_maps: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Build the offset, time and transaction indexes and the time maps from the logs, which are not changed.

    Files that are already correct stay unchanged. No broker may be running. With --out all files are written below that folder,
    as TOPIC-PARTITION/FILE, and DIR is only read.
    """
    log_dir = LogDir(directory)
    wanted = select_partitions(log_dir, topic, partitions)
    out = checked_out_dir(out_dir, log_dir.path)
    missing = log_dir.missing(topic, partitions)  # An index without its log, which is reported as well, is removed.
    rebuilt = []
    with nullcontext() if out is not None else DirLock(local_path(log_dir.path)), _Walk("rebuild", log_dir, wanted) as walk:
        options = RebuildOptions(out, interval_bytes, time_maps, jobs or processors(), walk.advance)
        for one in rebuild_partitions(walk.partitions(), options):
            rebuilt.append(one)
            walk.print(_file_lines(one, as_json))
            for finding in one.findings:
                notices.complain(str(finding))
    print_lines(
        map(_json_rebuilt, rebuilt)
        if as_json
        else table(_REBUILT_HEADER, map(_rebuilt_cells, rebuilt), spare=("interval", "segments"))
    )
    report_missing(missing, as_json=as_json)
    if any(one.findings for one in rebuilt):
        raise click.exceptions.Exit(FAULTS_FOUND)
    end_with_missing(missing)


class _Walk:
    """Opens the partitions to process one by one, and shows a progress bar."""

    def __init__(self, what: str, log_dir: LogDir, wanted: list[tuple[str, int]]) -> None:
        self._log_dir = log_dir
        self._wanted = wanted
        logs = (path for key in wanted for path in log_files(log_dir.directory(*key)))
        self._bar = ProgressBar(what, size_of(logs), answer_on_stdout=False)

    def __enter__(self) -> _Walk:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(None, None, None)

    def advance(self, done_bytes: int) -> None:
        """Add to the number of processed bytes. May be called on any thread."""
        self._bar.advance(done_bytes)

    def print(self, lines: Iterable[str]) -> None:
        """Print lines. The progress bar is hidden meanwhile."""
        found = list(lines)
        if found:
            self._bar.hide()
            print_lines(found)

    def partitions(self) -> Iterator[PartitionToVerify]:
        """Yield the partitions one by one; each is opened only when it is reached."""
        return partitions_to_verify(self._log_dir, self._wanted)


# --- verify


_VERIFIED_HEADER = (
    *("topic", "partition", "segments", "size", "interval", "offset entries", "time entries"),
    *("aborted transactions", "time maps", "faults"),
)
_SPARE = ("interval", "aborted transactions", "segments", "time maps")


def _verified_cells(one: VerifiedPartition) -> list[object]:
    return [
        *(one.topic, one.partition, show_count(one.segments), show_bytes_size(one.size_bytes), one.interval_bytes),
        *map(show_count, (one.offset_entries, one.time_entries, one.aborted_transactions, one.time_maps, one.faults)),
    ]


def _finding_lines(one: VerifiedPartition, as_json: bool) -> Iterator[str]:
    """Yield the findings of a partition; notes go to stderr, except with --json."""
    for finding in one.findings:
        if as_json:
            yield _json_finding(one, finding)
        elif finding.is_fault:
            yield one_line(str(finding))
        else:
            notices.note(str(finding))


def _json_finding(one: VerifiedPartition, finding: Finding) -> str:
    return json_line(finding._replace(topic=one.topic, partition=one.partition).fields())


def _json_verified(one: VerifiedPartition) -> str:
    return json_line(
        {
            **_partition_fields(one),
            "offset_entries": one.offset_entries,
            "time_entries": one.time_entries,
            "aborted_transactions": one.aborted_transactions,
            "time_maps": one.time_maps,
            "faults": one.faults,
        }
    )


def _partition_fields(one: CheckedPartition) -> dict[str, object]:
    return {
        "type": "partition",
        "topic": one.topic,
        "partition": one.partition,
        "segments": one.segments,
        "bytes": one.size_bytes,
        "interval_bytes": one.interval_bytes,
    }


# --- rebuild


_REBUILT_HEADER = ("topic", "partition", "segments", "size", "interval", "files", "right", "changed", "new")


def _rebuilt_cells(one: RebuiltPartition) -> list[object]:
    return [
        *(one.topic, one.partition, show_count(one.segments), show_bytes_size(one.size_bytes), one.interval_bytes),
        *(len(one.files), sum(file.is_right for file in one.files), len(one.changed), len(one.new)),
    ]


def _file_lines(one: RebuiltPartition, as_json: bool) -> Iterable[str]:
    """Yield a line for each file that was wrong; for scripts, also for each file that was missing."""
    if as_json:
        return [_json_file(one, file) for file in (*one.changed, *one.new)]
    return [one_line(_changed(file)) for file in one.changed]


def _changed(file: RebuiltFile) -> str:
    if file.new_bytes is None:
        return f"{file.path}: removed, because there should be no such file"
    if file.new_bytes == file.old_bytes:
        return f"{file.path}: changed, {file.new_bytes} bytes"
    return f"{file.path}: changed, had {file.old_bytes} bytes, has {file.new_bytes}"


def _json_file(one: RebuiltPartition, file: RebuiltFile) -> str:
    return json_line(
        {
            "type": "file",
            "topic": one.topic,
            "partition": one.partition,
            "path": str(file.path),
            "old_bytes": file.old_bytes,
            "new_bytes": file.new_bytes,
        }
    )


def _json_rebuilt(one: RebuiltPartition) -> str:
    return json_line(
        {
            **_partition_fields(one),
            "files": len(one.files),
            "right": sum(file.is_right for file in one.files),
            "changed": len(one.changed),
            "new": len(one.new),
        }
    )
