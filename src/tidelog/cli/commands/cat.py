"""`tidelog cat DIR|HOST:PORT TOPIC...`: the records of an exact range of time, as text, JSON lines, CSV, Arrow or Parquet.

The range is `[from, to)` by the records' own timestamps: records that were appended late or early are included. Records come in
offset order, partition by partition, and stream: memory does not grow with the range, unless `--sort` or `--tail` collects
records. `cli/records` implements the options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

import click

from tidelog.cli.decode_options import decode_options, decodings_in_use
from tidelog.cli.lean_imports import lean_imports
from tidelog.cli.option_values import usage_errors
from tidelog.cli.options import data_dir_of, wanted_partitions
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import csv_lines, json_line, show_count, table
from tidelog.cli.printing.notices import INCOMPLETE
from tidelog.cli.printing.output import STDOUT, open_output
from tidelog.cli.printing.progress_bar import ProgressBar
from tidelog.cli.printing.terminal import stdout_is_terminal
from tidelog.cli.records.cat_options import BINARY_FORMATS, CatOptions, cat_options, span_ms
from tidelog.cli.records.offset_option import parse_offset
from tidelog.cli.time_options import echo_moment, zone_in_use
from tidelog.model import KAFKAS_TOPICS
from tidelog.near_names import did_you_mean
from tidelog.sources.opening import open_source

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.cli.records.reading import Reading
    from tidelog.decoding.decodings import Decodings
    from tidelog.sources.scan_plan import ScanPlan
    from tidelog.sources.selection.decoded_records import DecodedRecords
    from tidelog.sources.selection.filters import Filter
    from tidelog.sources.split import Split


EXIT_INTERRUPTED = 130


@click.command()
@decode_options
@cat_options
def command(options: CatOptions) -> None:
    """Read every record of a time range [--from, --to), exactly: by the records' timestamps, however late they were appended.

    TOPIC may be a pattern: 'order*', or '^orders[0-9]' for a regular expression. Records come in offset order, partition by
    partition. Control records are left out. Exit code 3: offsets are missing from the folder; the notes say which.
    """
    with lean_imports():
        import pyarrow  # noqa: F401
    with usage_errors():
        offsets = None if options.offset is None else parse_offset(options.offset)
        if options.format_string is not None:
            from tidelog.cli.records.format_string import parse_format

            parse_format(options.format_string)
    if options.follows and offsets is not None and offsets.end is not None:
        raise click.UsageError("--follow and an --offset with an end cannot be combined.")
    every_ms, lateness_ms = span_ms("--every", options.every), span_ms("--max-lateness", options.max_lateness)
    format_name = options.resolved_format()
    decodings = _with_internal(decodings_in_use(), options, format_name)
    if decodings is not None:
        from tidelog.sources.selection.decoded_records import DecodedRecords
    decoder = None if decodings is None else DecodedRecords(decodings)
    filters = _filters(options, decodings)
    echo_moment(options.start)
    echo_moment(options.end)
    with (
        open_output(
            options.output, format_name=format_name, binary=format_name in BINARY_FORMATS, data_dir=data_dir_of(options.source)
        ) as out,
        ExitStack() as stack,
    ):
        from tidelog.cli.records.reading import Reading, announce, why_empty
        from tidelog.cli.records.topic_names import named_topics
        from tidelog.sources.plan import scan_request
        from tidelog.sources.selection.filters import filter_notices

        request = scan_request(
            "",
            start=None if options.start is None else options.start.time_ms,
            end=None if options.end is None else options.end.time_ms,
            partitions=wanted_partitions(options.partitions),
            isolation=options.isolation,
            until="high_watermark" if options.until_high_watermark else "log_end",
            time_map_dir=options.time_map_dir,
        )
        source = open_source(options.source, skip_damaged=options.skip_damaged)
        stack.enter_context(source)
        reading = Reading(
            source,
            named_topics(source, options.topics),
            request,
            filters,
            offsets=offsets,
            max_lateness_ms=lateness_ms,
            follows=options.follows,
        )
        for name in () if decodings is None else decodings.unused(reading.topics):
            near = did_you_mean(name, reading.topics)
            notices.note(f"--decode, --key-decode or --schema names {name!r}, which is none of the topics to be read{near}")
        plans = reading.plans()
        if filters or options.order is not None or (options.count is None and options.tail is None):
            writes_text = not filters and not options.counts and format_name not in BINARY_FORMATS
            announce(plans, has_lateness=lateness_ms is not None, writes_text=writes_text)
        size_bytes = sum(one.size_bytes for one in plans)
        on_stdout = options.output in (None, STDOUT)
        with ProgressBar(f"cat {' '.join(reading.topics)}", size_bytes, answer_on_stdout=on_stdout) as bar:
            if options.counts:
                if not filters:
                    reading.columns = ("topic", "timestamp")
                written = _count(options, reading, reading.batches(plans, bar), every_ms, format_name, out)
            else:
                written = _write(options, reading, _selected(options, reading, plans, bar), out, format_name, decoder)
            if options.follows:
                try:
                    written = _follow(options, reading, plans, bar, out, format_name, written, decoder)
                except KeyboardInterrupt:
                    raise click.exceptions.Exit(EXIT_INTERRUPTED) from None  # This is how it ends: no message.
    for text in (*reading.report.notices(), *(() if decoder is None else decoder.notices()), *filter_notices(filters)):
        notices.note(text)
    if not written and options.count != 0 and (filters or on_stdout):
        hint = "; --key compares whole keys: to find a part of a key, use --grep" if options.keys and bar.records else ""
        if not filters and (options.start or options.end):
            hint = "; to see the time range of each topic, run tidelog ls"
        if empty := why_empty(plans):
            hint = f": {empty}"
        notices.note(f"no record matches ({bar.records:,} were read){hint}")
    if not on_stdout:
        notices.print_line(f"{options.output}: {written:,} record{'' if written == 1 else 's'}")
    if not reading.report.is_complete:
        raise click.exceptions.Exit(INCOMPLETE)


def _filters(options: CatOptions, decodings: Decodings | None) -> list[Filter]:
    from tidelog.sources.selection.filters import filters_for

    with usage_errors():
        return filters_for(
            options.keys,
            options.expressions,
            options.headers,
            options.where,
            ignores_case=options.ignores_case,
            decodings=decodings,
            prefix="--",
        )


def _with_internal(given: Decodings | None, options: CatOptions, format_name: str) -> Decodings | None:
    """Return decodings that also decode Kafka's internal topics, if the command names one and shows its records as text."""
    if (
        KAFKAS_TOPICS.isdisjoint(options.topics)
        or format_name in BINARY_FORMATS
        or options.encoding == "base64"
        or options.format_string
    ):
        return given
    from tidelog.decoding.decodings import Decodings

    return (given or Decodings([])).with_internal()


def _selected(options: CatOptions, reading: Reading, plans: list[ScanPlan[Split]], bar: ProgressBar) -> Iterable[pa.RecordBatch]:
    from tidelog.sources.selection.filters import limited
    from tidelog.sources.selection.sorting import by_time, sorted_by_time

    if options.tail is not None:
        last = reading.last(plans, options.tail, bar)
        return by_time(last) if options.order is not None else last
    batches: Iterable[pa.RecordBatch] = reading.batches(plans, bar)
    return limited(sorted_by_time(batches) if options.order is not None else batches, options.count)


def _write(
    options: CatOptions,
    reading: Reading,
    batches: Iterable[pa.RecordBatch],
    out: BinaryIO,
    format_name: str,
    decoder: DecodedRecords | None,
) -> int:
    """Write records; return their number."""
    written = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in batches:
            written += batch.num_rows
            yield batch

    from tidelog.cli.printing import record_writers
    from tidelog.sources.selection import record_files

    if format_name in BINARY_FORMATS:
        from tidelog.sources.schema import scan_schema

        schema, rows = scan_schema(), counted()
        if decoder is not None:
            schema, rows = decoder.typed(rows, schema, reading.topics)
        schema = schema.with_metadata(_origin(options, reading))
        if format_name == "parquet":
            record_files.write_parquet(rows, schema, out)
        else:
            as_file = options.output not in (None, STDOUT) and not str(options.output).endswith(".arrows")
            record_files.write_arrow(rows, schema, out, as_file=as_file)
        return written
    rows = counted() if decoder is None else decoder.displayed(counted())
    encoding = record_files.Encoding(options.encoding or "utf8")
    if options.format_string is not None:
        from tidelog.cli.records.format_string import parse_format, write_formatted

        write_formatted(rows, out, parse_format(options.format_string))
    elif format_name == "jsonl":
        record_files.write_jsonl(rows, out, encoding, reading.assumptions)
    elif format_name == "csv":
        record_writers.write_csv(rows, out, encoding, reading.assumptions)
    else:
        to_stdout = options.output in (None, STDOUT)
        record_writers.write_text(
            rows,
            out,
            encoding,
            with_header=to_stdout and stdout_is_terminal(),
            with_topic=len(reading.topics) > 1,
            to_stdout=to_stdout,
        )
    for text in encoding.notices():
        notices.note(text)
    return written


def _origin(options: CatOptions, reading: Reading) -> dict[str, str]:
    """Return the metadata of an Arrow or Parquet file: the request, and the assumptions behind the result."""
    facts = {
        "source": str(options.source),
        "topics": json_line(list(reading.topics)),
        "from_ms": None if options.start is None else str(options.start.time_ms),
        "to_ms": None if options.end is None else str(options.end.time_ms),
        **{name: str(value) for name, value in reading.assumptions.items()},
        "not_read": json_line(reading.not_read) if reading.not_read else None,
    }
    return {f"tidelog.{name}": value for name, value in facts.items() if value is not None}


def _follow(
    options: CatOptions,
    reading: Reading,
    plans: list[ScanPlan[Split]],
    bar: ProgressBar,
    out: BinaryIO,
    format_name: str,
    written: int,
    decoder: DecodedRecords | None,
) -> int:
    """Write records as they arrive, up to `-n` in all. Return the number of records written, including `written`."""
    from tidelog.sources.selection.filters import limited

    for batch in reading.following(plans, bar):
        if options.count is not None and written >= options.count:
            break
        if batch is None:
            out.flush()
            sys.stdout.flush()
            continue
        left = None if options.count is None else options.count - written
        written += _write(options, reading, limited([batch], left), out, format_name, decoder)
    return written


def _count(
    options: CatOptions,
    reading: Reading,
    batches: Iterable[pa.RecordBatch],
    every_ms: int | None,
    format_name: str,
    out: BinaryIO,
) -> int:
    """Write the numbers of records; return their sum."""
    from tidelog.cli.records.counting import count_records, count_rows, show_start

    zone = zone_in_use()
    counts = count_records(batches, every_ms, zone)
    rows: list[dict[str, object]] = [
        {
            "topic": topic,
            **({} if every_ms is None else {"time": show_start(start, zone)}),
            "records": count,
            **reading.assumptions,
        }
        for topic, start, count in count_rows(counts, reading.topics, every_ms)
    ]
    # With --every, an empty topic has no row.
    header = ["topic", *([] if every_ms is None else ["time"]), "records", *reading.assumptions]
    if format_name == "jsonl":
        lines: Iterator[str] = map(json_line, rows)
    elif format_name == "csv":
        lines = csv_lines([header, *(list(row.values()) for row in rows)])
    else:
        cells = ([show_count(cell) if isinstance(cell, int) else cell for cell in row.values()] for row in rows)
        lines = table(header, cells, to_stdout=options.output in (None, STDOUT))
    out.writelines(line.encode("utf-8", "backslashreplace") + b"\n" for line in lines)
    return counts.total()
