"""`/api/groups`, `/api/group`: how far behind consumer groups are, in records and in time."""

from __future__ import annotations

from tidelog.groups.description import DEAD
from tidelog.groups.lag import PartitionLag
from tidelog.model import OFFSETS_TOPIC, READ_COMMITTED, READ_UNCOMMITTED, Isolation, check_isolation
from tidelog.sources.group_lags import SUMMARY, keeps_positions, measure_all, missing_of, no_such_group, plan, summary_rows
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, known_ms, plain
from tidelog.web.jobs import Job
from tidelog.web.query import Query

WINDOW_MS = 600_000
"""Rates are averages over the last ten minutes."""

MAX_GROUPS = 1000


def groups(context: Context, query: Query, job: Job) -> Answer:
    """Return the groups whose names contain `q`, sorted by lag in time, the largest first."""
    pool, wanted = context.sources.named(query.text("source")), (query.text("q") or "").lower()
    with pool.borrowed() as source:
        if not _has_groups(source):
            return {
                "groups": [],
                "total": 0,
                "more": False,
                "notes": ["there is no __consumer_offsets topic: no group has committed offsets"],
            }
    found = measure_all(plan(pool.address, None, _isolation(query), WINDOW_MS, context.clock))
    found = [one for one in found if wanted in one.description.group.lower()]
    positions = {one.description.group for one in found if keeps_positions(one)}
    missing = missing_of(pool.address, None, found)
    shown = []
    for row in summary_rows(found)[:MAX_GROUPS]:
        one = {name: plain(value) if isinstance(value, int) else value for name, value in zip(SUMMARY, row, strict=True)}
        shown.append({**one, "keeps_positions": one["group"] in positions})
    return {"groups": shown, "total": len(found), "more": len(found) > MAX_GROUPS, "notes": [str(one) for one in missing]}


def group(context: Context, query: Query, job: Job) -> Answer:
    """Return a group's members, and its lag in each partition. Raises NotFoundError."""
    name = query.required("group")
    with context.sources.named(query.text("source")).borrowed() as source:
        stored = source.groups()
        found = stored.describe(name, context.clock, _isolation(query), WINDOW_MS)
        if found.description.state == DEAD and not found.partitions:
            raise no_such_group(name, source)
        unknown = sorted(stored.unknown_configs)
    described = found.description
    readers = {key: member.member_id for member in described.members for key in member.assignment or ()}
    notes = [str(one) for one in found.missing]
    notes += [f"{key.topic}-{key.partition}: the partition no longer exists, or has no leader" for key in found.without_log]
    if unknown:
        notes.append(f"the configuration of {', '.join(unknown[:5])} is not in the folder: a retention of 7 days is assumed")
    return {
        "group": described.group,
        "type": described.type,
        "state": described.state,
        "protocol": described.protocol,
        "members": [
            {
                "member_id": one.member_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "assignment": None if one.assignment is None else [list(key) for key in one.assignment],
            }
            for one in described.members
        ],
        "member_count": described.member_count,
        "partitions": [_partition(one, readers.get(one.key)) for one in found.partitions],
        "keeps_positions": keeps_positions(found),
        "notes": notes,
    }


def _has_groups(source: Source) -> bool:
    return source.cluster is not None or bool(source.topics([OFFSETS_TOPIC]))


def _isolation(query: Query) -> Isolation:
    return check_isolation(query.choice("isolation", (READ_COMMITTED, READ_UNCOMMITTED)))


def _partition(one: PartitionLag, reader: str | None) -> Answer:
    following, to_end, taken = one.next_record, one.time_to_end, one.retention
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": plain(one.committed_offset),
        "log_start": plain(one.log_start_offset),
        "end": plain(one.end_offset),
        "high_watermark": plain(one.high_watermark),
        "lag": plain(one.lag),
        "lag_ms": plain(one.lag_ms),
        "lost": plain(one.lost),
        "next_offset": None if following is None else plain(following.offset),
        "next_ms": None if following is None else known_ms(following.timestamp),
        "group_per_second": one.group_per_second,
        "topic_per_second": one.topic_per_second,
        "catches_up": to_end.catch_up.value,
        "time_to_end_ms": plain(to_end.time_ms),
        "retention": taken.precision.value,
        "retention_ms": plain(taken.goes_ms),
        "member_id": reader,
    }
