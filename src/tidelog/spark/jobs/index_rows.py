"""The results of index jobs: rows as DataFrames, and a summary with a line for each topic.

| job | `kind` | columns that are set, besides topic and partition |
|---|---|---|
| verify | `fault`, `note` | path, entry, position, what, found, expected |
| | `partition` | path, segments, bytes, interval_bytes, and the counts |
| rebuild | `file` | path, old_bytes, new_bytes, is_right, is_left |
| | `fault` | path, position, what, found, expected: a fault of a log |

`entry` is the number of an index entry, `position` a byte position in the file. If `old_bytes` is null, the file was missing. If
`new_bytes` is null, the file was removed. `is_right` means that the file was already correct. `is_left` means that the file was
wrong but was not replaced, because only missing files were requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.check.finding import Finding
from tidelog.check.partitions import RebuiltPartition, VerifiedPartition
from tidelog.spark.jobs.result import JobResult, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FINDING = (
    "kind string, topic string, partition int, path string, entry long, position long, what string, found string, expected string"
)

VERIFIED_SCHEMA = (
    f"{_FINDING}, segments long, bytes long, interval_bytes long, offset_entries long, time_entries long, "
    "aborted_transactions long, time_maps long, faults long"
)
REBUILT_SCHEMA = f"{_FINDING}, old_bytes long, new_bytes long, is_right boolean, is_left boolean"

_NO_FINDING = (None,) * 5


def verified_result(spark: SparkSession, results: Sequence[VerifiedPartition]) -> JobResult:
    """Return the result of a verification."""
    rows = [row for one in results for row in _verified_rows(one)]
    columns = ("topic", "partitions", "segments", "bytes", "aborted_transactions", "time_maps", "faults")
    lines = []
    for topic, ones in _by_topic(results):
        sums = (sum(getattr(one, name) for one in ones) for name in ("segments", "size_bytes", *columns[4:]))
        lines.append((topic, len(ones), *sums))
    frame = spark.createDataFrame(rows, VERIFIED_SCHEMA, verifySchema=False)
    return JobResult(frame, Summary(columns, tuple(lines)), sum(one.faults for one in results))


def rebuilt_result(spark: SparkSession, results: Sequence[RebuiltPartition]) -> JobResult:
    """Return the result of a rebuild."""
    rows = [row for one in results for row in _rebuilt_rows(one)]
    columns = ("topic", "partitions", "segments", "bytes", "files", "right", "changed", "new", "left", "faults")
    lines = []
    for topic, ones in _by_topic(results):
        counts = [
            (
                len(one.files),
                sum(file.is_right for file in one.files),
                len(one.changed),
                len(one.new),
                len(one.left),
                len(one.findings),
            )
            for one in ones
        ]
        sums = tuple(sum(column) for column in zip(*counts, strict=True))
        lines.append((topic, len(ones), sum(one.segments for one in ones), sum(one.size_bytes for one in ones), *sums))
    frame = spark.createDataFrame(rows, REBUILT_SCHEMA, verifySchema=False)
    return JobResult(frame, Summary(columns, tuple(lines)), sum(len(one.findings) for one in results))


def _verified_rows(one: VerifiedPartition) -> Iterator[tuple[Any, ...]]:
    for finding in one.findings:
        yield (*_finding(one.topic, one.partition, finding), *(None,) * 8)
    yield (
        *(
            "partition",
            one.topic,
            one.partition,
            str(one.directory),
            *_NO_FINDING,
            one.segments,
            one.size_bytes,
            one.interval_bytes,
        ),
        *(one.offset_entries, one.time_entries, one.aborted_transactions, one.time_maps, one.faults),
    )


def _rebuilt_rows(one: RebuiltPartition) -> Iterator[tuple[Any, ...]]:
    for finding in one.findings:
        yield (*_finding(one.topic, one.partition, finding), *(None,) * 4)
    for file in one.files:
        yield (
            "file",
            one.topic,
            one.partition,
            str(file.path),
            *_NO_FINDING,
            file.old_bytes,
            file.new_bytes,
            file.is_right,
            file.is_left,
        )


def _finding(topic: str, partition: int, finding: Finding) -> tuple[Any, ...]:
    kind = "fault" if finding.is_fault else "note"
    return (
        kind,
        topic,
        partition,
        str(finding.path),
        finding.entry,
        finding.position,
        finding.what,
        finding.found,
        finding.expected,
    )


def _by_topic(results: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for one in results:
        found.setdefault(one.topic, []).append(one)
    return list(found.items())
