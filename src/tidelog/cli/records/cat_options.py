"""The options of `cat`: which records, in which order, how many, and in which format."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import isolation_option, partition_option, positive_duration_ms, source_argument, topics_argument
from tidelog.cli.time_options import Moment, time_range_options
from tidelog.model import MAX_OFFSET, Isolation
from tidelog.sources.opening import kind_of

FORMATS = ("text", "jsonl", "csv", "arrow", "parquet")

BINARY_FORMATS = ("arrow", "parquet")

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".parquet": "parquet",
    ".txt": "text",
    ".log": "text",
    "": "text",
}
"""An output file's extension → its format, unless --format is given."""


def format_of(output: str | None) -> str:
    """Return the format of an output file. Raises UsageError if its extension is not that of a format, such as .xlsx or .gz."""
    suffix = Path(output or "").suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(filter(None, SUFFIXES))
        raise click.UsageError(
            f"--output: {suffix} is not the extension of a known format: choose one with --format, or use {known}."
        )
    return SUFFIXES[suffix]


_KCATS_OFFSET = re.compile(r"beginning|end|stored|earliest|latest|-?\d+|[se]@.*")


@dataclass(frozen=True, kw_only=True)
class CatOptions:
    """The values of the options of `cat`."""

    source: str
    topics: tuple[str, ...]
    start: Moment | None
    end: Moment | None
    partitions: tuple[int, ...]
    isolation: Isolation
    offset: str | None
    count: int | None
    tail: int | None
    follows: bool
    keys: tuple[str, ...]
    expressions: tuple[str, ...]
    ignores_case: bool
    headers: tuple[str, ...]
    where: str | None
    order: str | None
    counts: bool
    every: str | None
    max_lateness: str | None
    until_high_watermark: bool
    time_map_dir: str | None
    skip_damaged: bool
    format_name: str | None
    as_json: bool
    format_string: str | None
    encoding: str | None
    output: str | None

    def resolved_format(self) -> str:
        """Return the format's name: --json, --format, else by the output's extension, else text."""
        if self.format_string is not None and Path(self.output or "").suffix.lower() not in SUFFIXES:
            return self.format_name or "text"
        return "jsonl" if self.as_json else self.format_name or format_of(self.output)

    def check(self) -> None:
        """Raise UsageError for contradictory options."""
        kind = kind_of(self.source)
        format_name = self.resolved_format()
        for is_wrong, refusal in (
            (
                not kind.reads_files and (self.time_map_dir is not None or self.until_high_watermark),
                f"--time-map-dir and --until-high-watermark are for folders, not for {kind.name}.",
            ),
            (
                not kind.reads_files and self.skip_damaged,
                f"--skip-damaged reads segment files, so it needs a folder, not {kind.name}.",
            ),
            (
                self.encoding is not None and format_name in BINARY_FORMATS,
                f"--encoding is for text, jsonl and csv: {format_name} holds bytes as they are.",
            ),
            (
                (self.format_string is not None) + (self.format_name is not None) + self.as_json > 1,
                "-f, --format and --json cannot be combined.",
            ),
            (self.tail is not None and self.count is not None, "--tail and -n cannot be combined."),
            (
                self.counts and (self.tail is not None or self.count is not None),
                "--count counts all records: -n and --tail do not apply.",
            ),
            (
                self.counts and format_name not in ("text", "jsonl", "csv"),
                f"--count writes text, jsonl or csv, not {format_name}.",
            ),
            (self.every is not None and not self.counts, "--every needs --count."),
            (self.follows and self.counts, "--follow and --count cannot be combined: a count needs an end."),
            (self.follows and self.order is not None, "--follow and --sort cannot be combined: sorting needs an end."),
            (self.follows and self.end is not None, "--follow and --to cannot be combined."),
            (
                self.follows and format_name in BINARY_FORMATS,
                f"--follow writes text, jsonl or csv: a file in {format_name} needs an end.",
            ),
            (
                self.follows and self.output not in (None, "-"),
                "--follow writes to standard output: a file appears once it is complete.",
            ),
            (self.max_lateness is not None and self.end is None, "--max-lateness needs --to."),
        ):
            if is_wrong:
                raise click.UsageError(refusal)


def _output(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an offset, which kcat's -o accepts, instead of writing to a file of that name."""
    if value is not None and _KCATS_OFFSET.fullmatch(value):
        raise click.BadParameter(
            f"{value!r} looks like an offset: use --offset; for a file of that name, use ./{value}", ctx, param
        )
    return value


def cat_options(function: Callable[[CatOptions], None]) -> Callable[..., Any]:
    """Add all arguments and options of `cat`; the command gets them as one object."""

    @functools.wraps(function)
    def called(**given: Any) -> None:
        options = CatOptions(**given)
        options.check()
        function(options)

    decorated: Callable[..., Any] = called
    for option in reversed(
        (
            source_argument,
            topics_argument(required=True),
            time_range_options(
                "Records with a timestamp at or after this.", "Records with a timestamp before this; +15m is relative to --from."
            ),
            partition_option,
            click.option(
                "--offset",
                metavar="N|-N|N:M",
                help="Offsets in each partition: from N on, the last N, N to M-1; earliest; latest.",
            ),
            click.option("--key", "keys", multiple=True, metavar="KEY", help="Only records with this key; may be repeated."),
            click.option(
                *("--grep", "expressions"),
                multiple=True,
                metavar="REGEX",
                help="Only records whose key or value matches (RE2 syntax); may be repeated.",
            ),
            click.option("--ignore-case", "-i", "ignores_case", is_flag=True, help="Make --grep ignore case."),
            click.option(
                *("--header", "headers"),
                multiple=True,
                metavar="NAME[=VALUE]",
                help="Only records with this header; may be repeated.",
            ),
            click.option(
                "--where",
                metavar="EXPRESSION",
                help="Only records for which an SQL expression is true: value->>'$.carrier' = 'UA' and offset > 100.",
            ),
            click.option("-n", "count", type=click.IntRange(0, MAX_OFFSET), metavar="N", help="Stop after N records."),
            click.option("--tail", type=click.IntRange(0, MAX_OFFSET), metavar="N", help="Only the last N records."),
            click.option("--follow", "follows", is_flag=True, help="Keep reading records as they arrive, until Ctrl-C."),
            click.option(
                "--sort",
                "order",
                type=click.Choice(["time"]),
                help="Sort the records of all partitions by time. [default: one partition after the other, by offset]",
            ),
            click.option("--count", "counts", is_flag=True, help="Count the records instead of writing them."),
            click.option(
                "--every", metavar="SPAN", help="With --count: count per interval of this length, such as 1m, 1h or 1d."
            ),
            click.option(
                "--max-lateness",
                metavar="SPAN",
                help="Assume that no record is later than this: read only that far past --to, and print a note.",
            ),
            isolation_option,
            click.option(
                "--until-high-watermark",
                is_flag=True,
                help="Stop at the high-watermark checkpoint: later records may not have reached every replica.",
            ),
            click.option(
                "--time-map-dir",
                metavar="DIR",
                type=LocalPath(),
                help="A folder of time maps, used in preference to those beside the segments.",
            ),
            click.option("--skip-damaged", is_flag=True, help="Skip damaged batches and report them; the exit code is then 3."),
            click.option(
                "--format", "format_name", type=click.Choice(FORMATS), help="[default: by the extension of --output, else text]"
            ),
            click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl."),
            click.option(
                *("-f", "format_string"),
                metavar="FORMAT",
                help=r"A format string as in kcat: '%t %p %o %T %k %s %h\n'.",
            ),
            click.option(
                "--encoding",
                type=click.Choice(["utf8", "base64"]),
                help="Encoding of keys and values in text, jsonl and csv; base64 keeps every byte. [default: utf8]",
            ),
            click.option(
                *("--output", "-o"),
                metavar="FILE",
                type=LocalPath(),
                callback=_output,
                help="Write to FILE, which appears once it is complete.",
            ),
        )
    ):
        decorated = option(decorated)
    return decorated


def span_ms(option: str, text: str | None) -> int | None:
    """Return a duration in ms, None if it is not given. Raises UsageError for an invalid duration or 0."""
    return None if text is None else positive_duration_ms(option, text)
