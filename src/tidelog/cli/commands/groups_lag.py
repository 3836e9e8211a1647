"""`tidelog groups lag DIR|HOST:PORT`: the lag of all groups, and an exit code for alarms."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidelog.cli.options import json_option, lag_options, lag_times, source_argument
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import Amount, json_line, show_count, show_span, table
from tidelog.cli.printing.missing import end_with_missing, report_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.time_options import run_clock
from tidelog.model import OFFSETS_TOPIC, Isolation
from tidelog.reader.missing.missing_offsets import MissingOffsets

_SHOWN_NAMES = 5


@click.command("lag", short_help="Show how far behind all groups are.")
@source_argument
@lag_options
@json_option
@click.pass_context
def lag_command(
    ctx: click.Context,
    source: str,
    groups: tuple[str, ...],
    isolation: Isolation,
    window: str,
    max_lag: str | None,
    as_json: bool,
) -> None:
    """Show the lag of every group, in records and in time, the largest first.

    Groups in which Tidelog's own writers (sinks, mirrors, replays) store their positions have no lag. They are shown only if they
    are named, and never count for --max-lag.
    """
    from tidelog.sources.group_lags import (
        SUMMARY,
        check_all_there,
        is_fault,
        keeps_positions,
        measure_all,
        missing_of,
        plan,
        summary_rows,
    )

    window_ms, max_lag_ms = lag_times(window, max_lag)
    wanted = tuple(dict.fromkeys(groups)) or None
    found = measure_all(plan(source, wanted, isolation, window_ms, run_clock(ctx)))
    missing = missing_of(source, wanted, found)
    note_missing_commits(missing)
    check_all_there(found, wanted, source)
    positions = sorted(one.description.group for one in found if keeps_positions(one))
    shown = found if wanted else [one for one in found if one.description.group not in positions]
    rows = summary_rows(shown)
    if as_json:
        print_lines(json_line({**dict(zip(SUMMARY, row, strict=True)), "keeps_positions": row[0] in positions}) for row in rows)
    else:
        spans = {SUMMARY.index("lag_ms"): "behind", SUMMARY.index("time_to_end_ms"): "in"}
        header = tuple(spans.get(at, name.replace("_", " ")) for at, name in enumerate(SUMMARY))
        cells = (
            [
                cell if not isinstance(cell, int) else Amount(show_span(cell)) if at in spans else show_count(cell)
                for at, cell in enumerate(row)
            ]
            for row in rows
        )
        print_lines(table(header, cells, spare=("type", "most behind", "catches up", "lost", "in", "partitions")))
    if positions:
        names = ", ".join(positions[:_SHOWN_NAMES]) + (", ..." if len(positions) > _SHOWN_NAMES else "")
        notices.note(f"no lag is shown for {len(positions)} groups that hold positions of Tidelog's writers: {names}")
    report_missing(missing, as_json=as_json)
    late = [one.description.group for one in found if is_fault(one, max_lag_ms)]
    if late:
        raise click.exceptions.Exit(1)
    end_with_missing(missing)


def note_missing_commits(missing: Sequence[MissingOffsets]) -> None:
    """Print a note that groups may be shown incorrectly if `__consumer_offsets` lacks records."""
    lost = sorted({one.partition for one in missing if one.topic == OFFSETS_TOPIC})
    if lost:
        names = ", ".join(f"{OFFSETS_TOPIC}-{one}" for one in lost[:_SHOWN_NAMES]) + (", ..." if len(lost) > _SHOWN_NAMES else "")
        notices.note(f"records are missing from {names}: groups stored there may be shown incorrectly, or not at all")
