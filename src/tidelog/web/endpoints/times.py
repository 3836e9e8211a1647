"""`/api/time`: parses the times that a person typed."""

from __future__ import annotations

from tidelog.times import format_local, format_time
from tidelog.web.context import Answer, Context, plain
from tidelog.web.jobs import Job
from tidelog.web.query import Query


def understood(context: Context, query: Query, job: Job) -> Answer:
    """Return `start` and `end` in epoch ms and as text in the time zone `tz`; null if missing. `end` may be relative to
    `start`.
    """
    start, end = query.range()
    zone = query.text("tz") or context.zone
    return {
        name: None if one is None else {"ms": plain(one), "text": format_local(one, zone) or format_time(one)}
        for name, one in (("start", start), ("end", end))
    }
