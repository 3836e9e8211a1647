"""`tidelog sql DIR|HOST:PORT [QUERY]`: SQL over the topics of a folder or a cluster. Without QUERY, it starts a shell.

`tidelog.queries` has the tables and the rules; the result goes to standard output or to a file. The notes and exit codes are
those of `cat`: 3 if records are missing from a table that was read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from tidelog.cli.decode_options import decode_options, decodings_in_use
from tidelog.cli.lean_imports import lean_imports
from tidelog.cli.local_path import LocalPath
from tidelog.cli.options import data_dir_of, isolation_option, json_option, source_argument
from tidelog.cli.printing import notices
from tidelog.cli.printing.output import STDOUT, open_output
from tidelog.cli.records.cat_options import BINARY_FORMATS, FORMATS, format_of
from tidelog.cli.time_options import run_clock, time_zone_option, zone_in_use
from tidelog.sources.opening import kind_of

if TYPE_CHECKING:
    from tidelog.queries.results import Result, Results
    from tidelog.queries.session import Session
    from tidelog.queries.statements import Statement


@click.command()
@source_argument
@click.argument("query", required=False)
@time_zone_option
@isolation_option
@click.option(
    "--until-high-watermark",
    is_flag=True,
    help="Stop at the high-watermark checkpoint: later records may not have reached every replica.",
)
@click.option(
    "--time-map-dir",
    metavar="DIR",
    type=LocalPath(),
    help="A folder of time maps, used in preference to those beside the segments.",
)
@decode_options
@click.option("--skip-damaged", is_flag=True, help="Skip damaged batches and report them; the exit code is then 3.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="[default: by the extension of --output, else text]")
@click.option("--output", "-o", metavar="FILE", type=LocalPath(), help="Write to FILE, which appears once it is complete.")
@json_option
def command(
    source: str,
    query: str | None,
    isolation: str,
    until_high_watermark: bool,
    time_map_dir: str | None,
    skip_damaged: bool,
    format_name: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Query topics with SQL. Each topic is a table: topic, partition, offset, timestamp, key, value, headers.

    \b
    tidelog sql DIR "select date_trunc('minute', timestamp), count(*) from orders
                     where timestamp >= moment('yesterday 09:00') group by 1"

    Ranges of timestamps, partitions and offsets in WHERE limit what is read; EXPLAIN shows how. Without QUERY, standard
    input is read, or a shell starts if that is a terminal. Only --output writes a file. Exit code 3: offsets are missing from
    the folder; notes say which.
    """  # noqa: D301  # In a raw text \b is no sign for click to keep the lines.
    format_name = format_name or ("jsonl" if as_json else format_of(output))
    if as_json and format_name != "jsonl":
        raise click.UsageError(f"--json and {format_name} cannot be combined.")
    if not kind_of(source).reads_files and (time_map_dir is not None or until_high_watermark or skip_damaged):
        raise click.UsageError("--time-map-dir, --until-high-watermark and --skip-damaged are for folders.")
    if query is None and " " in source.strip() and not Path(source).exists():
        raise click.UsageError("give a folder or brokers before the query: tidelog sql DIR|HOST:PORT QUERY.")
    is_shell = query is None and sys.stdin is not None and sys.stdin.isatty() and output is None
    with lean_imports():
        from tidelog.queries.results import Results
        from tidelog.queries.session import Session

    decodings = decodings_in_use()

    def opened(zone: str | None) -> Session:
        return Session(
            source,
            isolation=isolation,
            until="high_watermark" if until_high_watermark else "log_end",
            time_map_dir=time_map_dir,
            skip_damaged=skip_damaged,
            tz=zone,
            decode=decodings,
            clock=None if is_shell else run_clock(click.get_current_context()),
        )

    if is_shell:
        from tidelog.cli.sql.shell import Shell

        Shell(opened, zone_in_use(), format_name).run()
        return
    text = sys.stdin.read() if query is None or query == STDOUT else query
    with opened(zone_in_use()) as session, Results(session) as results:
        statements = session.statements(text)
        if not statements:
            raise click.UsageError("the query is empty.")
        is_complete = True
        for statement in statements:
            run_statement(results, statement, format_name, output, data_dir_of(source), is_last=statement is statements[-1])
            is_complete &= session.report.is_complete
    if not is_complete:
        raise click.exceptions.Exit(notices.INCOMPLETE)


def run_statement(
    results: Results, statement: Statement, format_name: str, output: str | None, data_dir: str | None, *, is_last: bool
) -> None:
    """Execute a statement and write its result. With an output file, only the last statement may have a result."""
    result = results.execute(statement)
    if result is None:
        if is_last and output is not None:
            raise click.UsageError("--output needs a result, but the last statement returns none.")
        return
    if output is not None and not is_last:
        raise click.UsageError("--output accepts one result: only the last statement may return rows.")
    with open_output(output, format_name=format_name, binary=format_name in BINARY_FORMATS, data_dir=data_dir) as out:
        written = _write(result, out, format_name, output, is_explain=statement.explained is not None)
    if output not in (None, STDOUT):
        notices.print_line(f"{output}: {written:,} row{'' if written == 1 else 's'}")


def _write(result: Result, out: BinaryIO, format_name: str, output: str | None, *, is_explain: bool) -> int:
    from tidelog.cli.printing.rows import Counted, write_rows
    from tidelog.sources.selection.record_files import write_arrow, write_parquet

    batches = Counted(result.batches)
    if is_explain and format_name == "text":
        # A plan is drawn with lines, and would not fit into a table.
        for batch in batches:
            out.writelines(f"{line}\n".encode() for line in batch.column(0).to_pylist())
    elif format_name == "parquet":
        write_parquet(batches, result.schema, out)
    elif format_name == "arrow":
        write_arrow(batches, result.schema, out, as_file=output not in (None, STDOUT) and not str(output).endswith(".arrows"))
    else:
        write_rows(result.schema.names, batches, out, format_name)
    return batches.rows
