"""`tidelog verify --replicas DIR DIR...`: compares the data folders of several brokers.

Each difference is printed to standard output with the content of each folder, followed by a table of the partitions; notes go to
stderr.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.check.replicas.partition_comparison import PartitionComparison
from tidelog.check.replicas.replicas_verify import ReplicasReport, verify_replicas
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line, show_bytes_size, table
from tidelog.cli.printing.output import print_lines
from tidelog.objects.address import is_object_address, options_of, with_options
from tidelog.objects.opening import folder_at


def compare_folders(directories: Sequence[str], topics: Sequence[str], threads: int, *, as_json: bool) -> bool:
    """Compare data folders, print the findings, and return whether there is no difference or damage. The options in
    the first folder's address apply to all folders in object storage.
    """
    options = options_of(directories[0])
    addresses = [with_options(one, options) if is_object_address(one) else one for one in directories]
    report = verify_replicas([folder_at(one) for one in addresses], topics, threads=threads)
    print_lines(_json_lines(report) if as_json else _lines(report))
    return report.is_equal


def _lines(report: ReplicasReport) -> Iterator[str]:
    for finding in (*report.findings, *(one for partition in report.partitions for one in partition.findings)):
        if finding.is_fault:
            yield one_line(f"{finding.kind}: {finding}")
        else:
            notices.note(str(finding))
    for partition in report.partitions:
        for difference in partition.differences:
            yield one_line(f"difference: {difference}")
            for standing in difference.standings:
                yield f"  {one_line(str(standing))}"
    yield from table(_HEADER, map(_cells, report.partitions), spare=("sha256", "high watermark of", "replicas"))


_HEADER = ("topic", "partition", "replicas", "from", "to", "high watermark of", "size", "differences", "sha256")


def _cells(one: PartitionComparison) -> list[object]:
    found = one.range
    bounds = [None] * 3 if found is None else [found.start, found.end, str(found.end_of)]
    faults = sum(finding.is_fault for finding in one.findings)
    return [*one.key, len(one.directories), *bounds, show_bytes_size(one.size_bytes), len(one.differences) + faults, one.sha256]


def _json_lines(report: ReplicasReport) -> Iterator[str]:
    for finding in report.findings:
        yield json_line(finding.fields())
    for one in report.partitions:
        for finding in one.findings:
            yield json_line(finding.fields())
        for difference in one.differences:
            yield json_line(difference.fields())
        yield json_line(_fields(one))
    yield json_line({"type": "folders", "paths": [str(path) for path in report.directories], "is_equal": report.is_equal})


def _fields(one: PartitionComparison) -> dict[str, object]:
    found = one.range
    return {
        "type": "replicas",
        "topic": one.key.topic,
        "partition": one.key.partition,
        "paths": [str(path) for path in one.directories],
        "start_offset": None if found is None else found.start,
        "start_of": None if found is None else str(found.start_of),
        "bytes_from": one.bytes_from,
        "end_offset": None if found is None else found.end,
        "end_of": None if found is None else str(found.end_of),
        "bytes": one.size_bytes,
        "sha256": one.sha256,
        "is_equal": one.is_equal,
    }
