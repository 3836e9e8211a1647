"""The lines of EXPLAIN: DuckDB's plan, then the part of each topic that is read, and the reason if it could not be limited.

Without ANALYZE the query is executed over empty tables. DuckDB then passes the same columns and filters to each table as in a
real execution, except for filters that a join derives from the values of another table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.queries.statements import Statement
from tidelog.queries.topic_scan import TopicScan

if TYPE_CHECKING:
    from tidelog.queries.session import Session


def explained(session: Session, statement: Statement) -> list[str]:
    """Return the lines of an EXPLAIN. Raises the errors of `Session.relation`."""
    relation = session.relation(statement, only_plans=not statement.analyzes)
    assert relation is not None
    lines = [line for row in relation.fetchall() for line in str(row[-1]).splitlines()]
    if not statement.analyzes:
        assert statement.explained is not None
        query = session.relation(Statement(statement.explained, "SELECT"), only_plans=True)
        if query is not None:
            query.to_arrow_reader().read_all()
    for one in session.scans:
        lines += ["", *_scan_lines(one)]
    return lines


def _scan_lines(one: TopicScan) -> Iterator[str]:
    bounds, report = one.bounds, one.report
    yield f"reads {one.topic}: {', '.join(one.columns)}"
    numbers = "all" if one.has_all_partitions else ", ".join(map(str, bounds.partitions)) or "none"
    yield f"  partitions: {numbers}"
    if bounds.offsets is not None:
        for number in bounds.partitions:
            first, end = bounds.offsets[number]
            yield f"  offsets of partition {number}: [{first}, {'...' if end == 2**63 - 1 else end})"
    yield f"  timestamps: {bounds.time}" if bounds.time.is_bounded else f"  timestamps: all; {_why_no_times(one)}"
    if one.plan is not None:
        planned = one.plan
        of = sum(part.size_bytes for part in planned.partitions)
        segments = sum(part.segments for part in planned.partitions)
        within = f" in {sum(part.segments_read for part in planned.partitions)} of {segments} segments" if segments else ""
        yield f"  bytes: {planned.size_bytes:,} of {of:,}{within}{_why_not_less(one)}"
        for note in planned.notes:
            yield f"  note: {note}"
    else:
        yield f"  read: {report.bytes_read:,} bytes, {report.records:,} records"
    if report.blocks_skipped or report.blocks_read:
        yield f"  time maps: {report.blocks_skipped:,} of {report.blocks_skipped + report.blocks_read:,} blocks are skipped"
    if one.filter is not None and not bounds.is_exact:
        yield f"  each record is checked: {' '.join(one.filter.split())}"


def _why_no_times(one: TopicScan) -> str:
    return "no condition limits them" if one.filter is None else "the conditions accept any time, or records without a timestamp"


def _why_not_less(one: TopicScan) -> str:
    report = one.report
    if one.bounds.time.end_ms is None or report.blocks_skipped or report.blocks_read:
        return ""
    return "; late records may be anywhere after the start (no time maps)"
