"""`tidelog import DIR TOPIC FILE --timestamp COL`: writes a file of rows as a new topic, in segments as Kafka writes them.

The command takes the folder's lock, which a running broker holds. It writes beside the existing topics, and publishes the new
topic when all of it is on disk. A failed run leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import directory_argument, json_option, topic_argument
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_bytes_size, show_count, show_time, table
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.clock import SystemClock
from tidelog.config import INT32_MAX, INT64_MAX, LogConfig, unaliased
from tidelog.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from tidelog.ingest.importer import ImportSummary

UNITS = ("s", "ms", "us", "ns")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS = ("parquet", "csv", "jsonl")
_DEFAULTS = LogConfig()


@click.command()
@directory_argument
@topic_argument
@click.argument("file", metavar="FILE", type=LocalPath())
@click.option("--timestamp", "timestamp_column", metavar="COL", required=True, help="The column with each record's timestamp.")
@click.option(
    "--timestamp-unit",
    type=click.Choice(UNITS),
    help="Unit of the numbers in that column. [default: ms, and an error if they look like another unit]",
)
@click.option("--key", "key_column", metavar="COL", help="The column with each record's key. [default: no keys]")
@click.option(
    "--value",
    "value_column",
    metavar="COL",
    help="The column with each record's value. [default: the whole row as a JSON object]",
)
@click.option("--partitions", type=click.IntRange(1, INT32_MAX), default=1, show_default=True, help="Number of partitions.")
@click.option("--codec", type=click.Choice(CODECS), default="none", show_default=True, help="How batches are compressed.")
@click.option(
    "--batch-bytes",
    type=click.IntRange(1, INT32_MAX),
    default=16384,
    show_default=True,
    help="Size of a batch before compression; a larger row has a batch to itself.",
)
@click.option(
    "--segment-bytes",
    type=click.IntRange(14, INT32_MAX),
    help=f"A segment's largest size. [default: {_DEFAULTS.segment_bytes}]",
)
@click.option(
    "--segment-ms",
    type=click.IntRange(1, INT64_MAX),
    help=f"The longest span of event time in a segment, from its first batch. [default: {_DEFAULTS.segment_ms}]",
)
@click.option(
    "--index-interval-bytes",
    type=click.IntRange(0, INT32_MAX),
    help=f"Bytes of log between two index entries. [default: {_DEFAULTS.index_interval_bytes}]",
)
@click.option(
    "--config",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda _ctx, _param, values: _properties(values),
    help="A topic property under Kafka's name; may be repeated. [default: retention.ms=-1]",
)
@click.option("--format", "file_format", type=click.Choice(FORMATS), help="Format of FILE. [default: by its extension]")
@click.option("--delimiter", metavar="CHAR", help="CSV: the character between fields. [default: a comma; a tab in .tsv]")
@click.option("--as-text", is_flag=True, help="CSV: take every column as text; no types are inferred.")
@json_option
def command(
    directory: str,
    topic: str,
    file: str,
    timestamp_column: str,
    timestamp_unit: str | None,
    key_column: str | None,
    value_column: str | None,
    partitions: int,
    codec: str,
    batch_bytes: int,
    segment_bytes: int | None,
    segment_ms: int | None,
    index_interval_bytes: int | None,
    properties: dict[str, str],
    file_format: str | None,
    delimiter: str | None,
    as_text: bool,
    as_json: bool,
) -> None:
    """Write the rows of FILE as the new topic TOPIC of the data folder DIR, which is created if missing.

    FILE is Parquet, CSV with a header line, or JSON Lines (CSV and JSON Lines may be compressed). Records are in the order of
    the file. Keys choose partitions as Kafka's producers do; rows without a key go to the partitions in turn.

    Timestamps may be a timestamp or date column (without a zone it is UTC), epoch milliseconds, or ISO 8601 text; fractions of a
    millisecond are dropped. A row without a timestamp, or with one before 1970, is an error; so are numbers that look like
    seconds, microseconds or nanoseconds, unless --timestamp-unit is given.

    The topic's properties are stored in the metadata log of DIR. Its records are never deleted because of their age, unless
    --config retention.ms says so.

    The import is atomic. No broker may be running on DIR.
    """
    for name, value in (
        ("segment.bytes", segment_bytes),
        ("segment.ms", segment_ms),
        ("index.interval.bytes", index_interval_bytes),
    ):
        if value is not None:
            if name in properties:
                raise click.UsageError(f"{name} is given twice: by --{name.replace('.', '-')} and by --config")
            properties[name] = str(value)
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise click.UsageError(f"--delimiter must be one ASCII character other than a quote or a line break, not {delimiter!r}.")
    path = Path(file)
    _check_file(path)
    # Arrow is imported only for this command, and after the cheap checks.
    from tidelog.ingest.importer import ImportOptions, import_file
    from tidelog.records.compression import Codec

    options = ImportOptions(
        timestamp_column=timestamp_column,
        timestamp_unit=timestamp_unit,
        key_column=key_column,
        value_column=value_column,
        partitions=partitions,
        codec=Codec[codec.upper()],
        batch_bytes=batch_bytes,
        properties=properties,
        file_format=file_format,
        delimiter=delimiter,
        as_text=as_text,
    )

    def progress(what: str, total_bytes: int, /) -> ProgressBar:
        return ProgressBar(what, total_bytes, answer_on_stdout=False)

    summary = import_file(Path(directory), topic, path, options, SystemClock(), progress)
    for notice in summary.notices:
        notices.note(notice)
    print_lines(_json_lines(summary) if as_json else _lines(summary))


def _properties(values: tuple[str, ...]) -> dict[str, str]:
    """Return the topic properties given with --config. Raises click.BadParameter."""
    given: dict[str, str] = {}
    for text in values:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if name in given:
            raise click.BadParameter(f"{name} is given twice")
        given[name] = value
    try:
        LogConfig.from_properties(given)
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error)) from None
    return {name: str(value) for name, value in unaliased(given).items()}


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InvalidArgumentError("FILE is a folder", path=path)
    if not path.exists():
        raise NotFoundError("no such file", path=path)


def _lines(summary: ImportSummary) -> Iterable[str]:
    if len(summary.partitions) > 1:
        yield from table(
            ("partition", "records", "segments", "size"),
            [
                (one.partition, show_count(one.records), show_count(one.segments), show_bytes_size(one.size_bytes))
                for one in summary.partitions
            ],
        )
    span = ""
    if summary.min_timestamp is not None and summary.max_timestamp is not None:
        span = f", {show_time(summary.min_timestamp)} to {show_time(summary.max_timestamp)}"
    yield (
        f"{summary.topic}: {_count(summary.records, 'record')} in {_count(len(summary.partitions), 'partition')}, "
        f"{_count(summary.segments, 'segment')}, {show_bytes_size(summary.size_bytes)}{span}"
    )


def _json_lines(summary: ImportSummary) -> Iterable[str]:
    yield json_line(
        {
            "topic": summary.topic,
            "partitions": len(summary.partitions),
            "records": summary.records,
            "segments": summary.segments,
            "bytes": summary.size_bytes,
            "min_timestamp": -1 if summary.min_timestamp is None else summary.min_timestamp,
            "max_timestamp": -1 if summary.max_timestamp is None else summary.max_timestamp,
        }
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
