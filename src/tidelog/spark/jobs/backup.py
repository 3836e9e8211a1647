"""The jobs `backup`, `restore` and, for a backup, `verify`. They do the same as the commands without `job`, on Spark's workers.

| job | a task | the driver |
|---|---|---|
| backup | reads a partition's new batches from its leader, and writes them | requests offsets, finds the cut, writes the point |
| restore | copies a partition in transactions, and reads the copy back | plans, creates topics, sets groups' offsets |
| verify | reads some of the files and compares their checksums | reads the manifests |

Format, manifests and resuming are the same, so a command may continue a job's backup and vice versa.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidelog.backup.backup import Backup
from tidelog.backup.target import open_target
from tidelog.backup.verify import BackupReport, Finding, Place, check_file, verify_backup
from tidelog.capture.broker_capture import BrokerCapture
from tidelog.capture.capture import Capture, PartitionRead, Selection
from tidelog.capture.partition_capture import PartitionCapture
from tidelog.clock import SystemClock
from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.restore.restoring import RestoreReport, restore
from tidelog.sources.opening import kind_of
from tidelog.spark.jobs.distribute import Progress, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.backup.manifest import Point
    from tidelog.restore.cuts import RestorePlan

__all__ = ["point_result", "restore_backup", "restore_result", "take_backup", "verify_result", "verify_whole"]

TIMEOUT_MS = 30_000
FILES_PER_TASK = 200

Task = TypeVar("Task")
Result = TypeVar("Result")


def take_backup(spark: SparkSession, source: str, target: str, selection: Selection, progress: Progress | None = None) -> Point:
    """Take a point in a backup of the brokers at `source`, and return the point. Raises what `Capture` and `take` raise, and
    InvalidArgumentError if `source` is a folder.
    """
    _check_brokers(source, "a data folder cannot be backed up by a job: use `tidelog backup`")

    def read(task: PartitionRead) -> list[tuple[PartitionCapture, TidelogError | None]]:
        backup = Backup(open_target(target))
        task.capture.reopen(backup)
        with closing(BrokerCapture(source, TIMEOUT_MS)) as opened:
            done, error = task.read(opened, lambda _: None)
        if error is None:
            backup.target.flush()
        else:
            done.drop()
        return [(done, error)]

    def elsewhere(reads: list[PartitionRead]) -> Iterable[tuple[PartitionCapture, TidelogError | None]]:
        return run_tasks(spark, "back up partitions", reads, read, progress)

    with closing(BrokerCapture(source, TIMEOUT_MS)) as opened:
        return Capture(opened, open_target(target), SystemClock(), selection, elsewhere=elsewhere).take()


def verify_whole(spark: SparkSession, target: str, progress: Progress | None = None) -> BackupReport:
    """Check a whole backup. Raises what `verify_backup` raises."""

    def check(files: list[tuple[str, Place]]) -> list[tuple[list[Finding]]]:
        backup = Backup(open_target(target))
        return [(check_file(backup, one),) for one in files]

    def elsewhere(files: list[tuple[str, Place]]) -> Iterable[list[Finding]]:
        tasks = [files[first : first + FILES_PER_TASK] for first in range(0, len(files), FILES_PER_TASK)]
        return [row[0] for row in run_tasks(spark, "check files of a backup", tasks, check, progress)]

    return verify_backup(open_target(target), elsewhere=elsewhere)


def restore_backup(
    spark: SparkSession, plan: RestorePlan, work: Path, *, verify: bool = True, progress: Progress | None = None
) -> RestoreReport:
    """Restore into a cluster. `work` is a folder on a disk to which all workers have access.

    Raises what `restore` raises, and InvalidArgumentError if the target is a folder.
    """
    _check_brokers(plan.request.target, "a job cannot restore into a data folder: use `tidelog restore`")

    def run(function: Callable[[Task], Result], tasks: Sequence[Task], _: int, /) -> Iterable[Result]:
        return [row[0] for row in run_tasks(spark, "restore partitions", tasks, lambda task: [(function(task),)], progress)]

    return restore(plan, SystemClock(), work=work, verify=verify, run=run)


def point_result(spark: SparkSession, point: Point) -> JobResult:
    """Return a backup's point as a job's result."""
    columns = ("point", "topics", "partitions", "bytes", "written_bytes")
    row = (point.sequence, point.topics, point.partitions, point.size_bytes, point.written_bytes)
    return JobResult(spark.createDataFrame([row], ", ".join(f"{one} bigint" for one in columns)), Summary(columns, (row,)))


def restore_result(spark: SparkSession, report: RestoreReport) -> JobResult:
    """Return a restore's report as a job's result, with a row for each partition."""
    rows = [(*one.source, *one.target, one.records, one.end_offset, one.late_records) for one in report.partitions]
    schema = (
        "topic string, partition int, target_topic string, target_partition int, records bigint, end_offset bigint, late bigint"
    )
    sums = (len(rows), sum(one.size_bytes for one in report.partitions), len(report.groups), len(report.differences))
    summary = Summary(("partitions", "bytes_now", "groups", "differences"), (sums,))
    return JobResult(spark.createDataFrame(rows, schema), summary)


def verify_result(spark: SparkSession, report: BackupReport) -> JobResult:
    """Return a verification's report as a job's result, with a row for each finding."""
    rows = [(one.text, one.object, one.topic, one.partition, one.start_offset, one.end_offset) for one in report.findings]
    schema = "text string, object string, topic string, partition int, start_offset bigint, end_offset bigint"
    sums = (report.points, report.files, report.size_bytes, len(rows))
    return JobResult(spark.createDataFrame(rows, schema), Summary(("points", "files", "bytes", "findings"), (sums,)))


def _check_brokers(address: str, text: str) -> None:
    if not kind_of(address).is_cluster:
        raise InvalidArgumentError(text, found=address, expected="host:port")
