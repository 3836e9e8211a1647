"""`tidelog cat DIR|HOST:PORT TOPIC`: every record of an exact range of time, as text, JSON lines, Arrow or Parquet.

The range is `[from, to)` by the records' own timestamps: a record that was appended late is in it, one that was appended
early is too. Records come in offset order, partition by partition, and stream: memory does not grow with the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import (
    Moment,
    TimeType,
    data_dir_of,
    echo_moment,
    isolation_option,
    partition_option,
    source_argument,
    topic_argument,
    wanted_partitions,
)
from tidelog.cli.printing import notices
from tidelog.cli.printing.notices import INCOMPLETE
from tidelog.cli.printing.output import STDOUT, open_output, stdout_is_terminal
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.sources.opening import kind_of, open_source
from tidelog.times import format_time

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.sources.reader_resources import ReaderResources
    from tidelog.sources.scan_plan import ScanPlan
    from tidelog.sources.scan_report import ScanReport
    from tidelog.sources.split import Split

FORMATS = ("text", "jsonl", "arrow", "parquet")

SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".arrow": "arrow", ".arrows": "arrow", ".parquet": "parquet"}
"""End of an output's name → the format meant by it, unless --format says otherwise."""

BINARY_FORMATS = ("arrow", "parquet")


@click.command()
@source_argument
@topic_argument
@click.option("--from", "start", type=TimeType(), help="Records with this timestamp or a later one.")
@click.option("--to", "end", type=TimeType(), help="Records with an earlier timestamp than this.")
@partition_option
@isolation_option
@click.option(
    "--until-high-watermark",
    is_flag=True,
    help="Stop at the high-watermark checkpoint: later records may not have reached every replica.",
)
@click.option(
    "--time-map-dir", metavar="DIR", type=LocalPath(), help="A folder of time maps, used before those beside the segments."
)
@click.option("--skip-damaged", is_flag=True, help="Skip damaged batches and report them; the exit code is then 3.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="[default: by the name of the output, else text]")
@click.option(
    "--encoding",
    type=click.Choice(["utf8", "base64"]),
    help="Encoding of keys and values in text and jsonl; base64 keeps every byte. [default: utf8]",
)
@click.option("--output", "-o", metavar="FILE", type=LocalPath(), help="Write to FILE, which appears once it is complete.")
def command(
    source: str,
    topic: str,
    start: Moment | None,
    end: Moment | None,
    partitions: tuple[int, ...],
    isolation: str,
    until_high_watermark: bool,
    time_map_dir: str | None,
    skip_damaged: bool,
    format_name: str | None,
    encoding: str | None,
    output: str | None,
) -> None:
    """Read every record of a time range [--from, --to), exactly: by the records' timestamps, however late they came.

    Records come in offset order, partition by partition. Control records are left out. Exit code 3: offsets are missing from the
    folder; the notes say which.
    """
    if start is not None and end is not None and end.time_ms < start.time_ms:
        raise click.UsageError(f"the range ends at {format_time(end.time_ms)}, before its start {format_time(start.time_ms)}.")
    format_name = format_name or SUFFIXES.get(Path(output or "").suffix.lower(), "text")
    kind = kind_of(source)
    if not kind.reads_files and (time_map_dir is not None or until_high_watermark):
        raise click.UsageError(f"--time-map-dir and --until-high-watermark are for folders, not for {kind.name}.")
    if not kind.reads_files and skip_damaged:
        raise click.UsageError(f"--skip-damaged is for folders: of {kind.name} segment files are not accessible.")
    if encoding is not None and format_name in BINARY_FORMATS:
        raise click.UsageError(f"--encoding is for text and jsonl: {format_name} holds bytes as they are.")
    echo_moment(start)
    echo_moment(end)
    data_dir = data_dir_of(source)
    with (
        open_output(output, format_name=format_name, binary=format_name in BINARY_FORMATS, data_dir=data_dir) as out,
        ExitStack() as stack,
    ):
        from tidelog.sources.plan import scan_request
        from tidelog.sources.scan_report import ScanReport

        request = scan_request(
            topic,
            start=None if start is None else start.time_ms,
            end=None if end is None else end.time_ms,
            partitions=wanted_partitions(partitions),
            isolation=isolation,
            until="high_watermark" if until_high_watermark else "log_end",
            time_map_dir=time_map_dir,
        )
        opened = open_source(source, skip_damaged=skip_damaged)
        reading = stack.enter_context(opened.reading)
        scan_plan = opened.plan(request)
        del opened  # What it knows of the folder's logs is no longer needed.
        # The plan's own notes are about offsets asked for, which this command does not, and about the high watermark: the
        # report counts the records after that, in one note for all partitions.
        report = ScanReport()
        report += scan_plan.known
        with ProgressBar(f"cat {topic}", scan_plan.size_bytes, answer_on_stdout=output in (None, STDOUT)) as bar:
            _write(_batches(scan_plan, report, bar, reading), out, format_name, encoding or "utf8", output)
    for text in report.notices():
        notices.note(text)
    if output not in (None, STDOUT):
        notices.print_line(f"{output}: {report.records:,} record{'' if report.records == 1 else 's'}")
    if not report.is_complete:
        raise click.exceptions.Exit(INCOMPLETE)


def _batches(
    scan_plan: ScanPlan[Split], report: ScanReport, bar: ProgressBar, resources: ReaderResources
) -> Iterator[pa.RecordBatch]:
    for split in scan_plan.splits:
        before = bar.done_bytes
        start_bytes = report.bytes_read
        for batch in split.read(report=report, reading=resources):
            bar.advance(min(report.bytes_read - start_bytes, split.size_bytes) - (bar.done_bytes - before))
            yield batch
        bar.advance(split.size_bytes - (bar.done_bytes - before))


def _write(batches: Iterator[pa.RecordBatch], out: BinaryIO, format_name: str, encoding_name: str, output: str | None) -> None:
    from tidelog.cli.printing import record_writers

    if format_name in BINARY_FORMATS:
        from tidelog.sources.schema import scan_schema

        schema = scan_schema()
        if format_name == "parquet":
            record_writers.write_parquet(batches, schema, out)
        else:
            as_file = output not in (None, STDOUT) and not str(output).endswith(".arrows")
            record_writers.write_arrow(batches, schema, out, as_file=as_file)
        return
    encoding = record_writers.Encoding(encoding_name)
    if format_name == "jsonl":
        record_writers.write_jsonl(batches, out, encoding)
    else:
        on_terminal = output in (None, STDOUT) and stdout_is_terminal()
        record_writers.write_text(batches, out, encoding, with_header=on_terminal)
    for text in encoding.notices():
        notices.note(text)
