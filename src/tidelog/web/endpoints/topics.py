"""`/api/sources`, `/api/topics`, `/api/topic`: the sources, and their topics and partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tidelog.backup.backup_path import BackupPath
from tidelog.errors import TidelogError, UnsupportedForMessageFormatError
from tidelog.model import EARLIEST, MAX_TIMESTAMP, NO_TIMESTAMP, TopicPartition, is_hidden
from tidelog.reader.log_dir import LogDir
from tidelog.sources.source import Source
from tidelog.web.context import Answer, Context, known_ms, plain
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.summaries import Summary

if TYPE_CHECKING:
    from tidelog.config import LogConfig

MAX_TOPICS = 1000

DETAILS_S = 0.15
"""Seconds that a request may take to find sizes, offsets and times. Topics not done by then are `pending`, and the page asks
again.
"""

MAX_REPORTED = 2000
"""The most partitions in a response for which brokers are asked for the log ends."""

SHOWN_PARTITIONS = 1000
"""The most partitions of a topic in one response. The parameter `after` continues."""


def sources(context: Context, query: Query, job: Job) -> Answer:
    """Return the sources, Tidelog's version, and the page's time zone."""
    found = [
        {"id": pool.name, "kind": "brokers" if pool.kind.is_cluster else "folder", "address": str(pool.address)}
        for pool in context.sources.pools
    ]
    return {"sources": found, "version": version("tidelog"), "zone": context.zone or "UTC"}


ORDERS = ("topic", "partitions", "records", "bytes", "last_ms")


def topics(context: Context, query: Query, job: Job) -> Answer:
    """Return the topics whose names contain `q`, sorted by one of `ORDERS`, in reverse with `desc`.

    `after` is the last name of the previous page if topics are sorted by name, otherwise the number of topics before the page.
    Topics whose sizes and times are not known come last, and `pending` is true if another request may find them.
    """
    order, is_down = query.choice("sort", ORDERS), query.flag("desc")
    limit = query.number("limit", 100, 1, MAX_TOPICS)
    wanted = (query.text("q") or "").lower()
    is_by_name = order == "topic" and not is_down
    with context.sources.named(query.text("source")).borrowed() as source:
        listed = sorted(name for name in source.topics() if wanted in name.lower())
        if is_by_name:
            after = query.text("after")
            left = [name for name in listed if after is None or name > after]
            rows = _rows(context, source, left[:limit], job)
            is_more = len(left) > limit
        else:
            found = _rows(context, source, listed, job)
            known = [row for row in found if row[order] is not None]
            known.sort(key=lambda row: row[order] if order == "topic" else int(row[order]), reverse=is_down)
            ranked = known + [row for row in found if row[order] is None]
            first = query.number("after", 0, 0, 2**31 - 1)
            rows = ranked[first : first + limit]
            is_more = len(ranked) > first + limit
        shown_point = point(source)
    # Brokers are asked for everything at once: an immediate second request would find no more.
    is_pending = source.cluster is None and any(row["pending"] for row in (rows if is_by_name else found))
    return {"topics": rows, "total": len(listed), "more": is_more, "pending": is_pending, "point": shown_point}


def point(source: Source) -> Answer | None:
    """Return which point of a backup is shown; None if the source is not a backup."""
    path = None if source.log_dir is None else source.log_dir.path
    if not isinstance(path, BackupPath):
        return None
    return {"sequence": path.folder.point.sequence, "taken_ms": plain(path.folder.point.taken_ms)}


def _rows(context: Context, source: Source, names: list[str], job: Job) -> list[Answer]:
    numbers = source.topics(names) if names else {}
    keys = [TopicPartition(name, number) for name in names for number in numbers.get(name, ())]
    figures = _figures(context, source, keys, job)
    answer = []
    for name in names:
        parts = [figures.get(TopicPartition(name, number)) for number in numbers.get(name, ())]
        row = {"topic": name, "internal": is_hidden(name), "partitions": len(parts), **_totals(parts)}
        if source.cluster is not None and None in parts:
            row["notes"].append(f"partitions not read: {parts.count(None)}")
        answer.append(row)
    return answer


def topic(context: Context, query: Query, job: Job) -> Answer:
    """Return a topic's settings, and its partitions after the number `after`. If time runs out, `more` partitions are left.

    A partition without a leader is `pending`, and has no figures.
    """
    name, after = query.required("topic"), query.number("after", -1, -1, 2**31 - 1)
    with context.sources.named(query.text("source")).borrowed() as source:
        numbers = source.partitions(name)
        wanted = [number for number in numbers if number > after]
        keys = [TopicPartition(name, number) for number in wanted[:SHOWN_PARTITIONS]]
        figures = _figures(context, source, keys, job, limit_s=None)
        if source.log_dir is not None:
            keys = keys[: len(figures)]
        config, origins = _config(source, name)
        shown_point = point(source)
        missing = [] if after >= 0 else [one for one in source.missing_partitions() if one.topic == name]
    return {
        "topic": name,
        "internal": is_hidden(name),
        "config": config,
        "config_from": origins,
        "partitions": [_partition(key.partition, figures.get(key)) for key in keys],
        "total": len(numbers),
        "more": len(wanted) > len(keys),
        "missing": [str(one) for one in missing],
        "point": shown_point,
    }


def _partition(number: int, summary: Summary | None) -> Answer:
    if summary is None:
        return {"partition": number, "pending": True, "notes": []}
    return {
        "partition": number,
        "log_start": plain(summary.log_start_offset),
        "end": plain(summary.log_end_offset),
        "high_watermark": plain(summary.high_watermark),
        "bytes": plain(summary.size_bytes),
        "segments": summary.segments,
        "first_ms": known_ms(summary.first_ms),
        "last_ms": known_ms(summary.last_ms),
        "pending": False,
        "notes": [] if summary.error is None else [summary.error],
    }


def _totals(parts: Iterable[Summary | None]) -> Answer:
    known = [one for one in parts if one is not None]
    is_pending = not known or len(known) < len(list(parts))
    first = [one.first_ms for one in known if one.first_ms != NO_TIMESTAMP]
    last = [one.last_ms for one in known if one.last_ms != NO_TIMESTAMP]
    return {
        "pending": is_pending,
        "bytes": None if is_pending else plain(sum(one.size_bytes for one in known)),
        "records": None if is_pending else plain(sum(one.log_end_offset - one.log_start_offset for one in known)),
        "first_ms": known_ms(min(first, default=None)),
        "last_ms": known_ms(max(last, default=None)),
        "notes": [f"{sum(one.error is not None for one in known)} partitions cannot be read"]
        if any(one.error is not None for one in known)
        else [],
    }


def _figures(
    context: Context, source: Source, keys: list[TopicPartition], job: Job, *, limit_s: float | None = DETAILS_S
) -> Mapping[TopicPartition, Summary]:
    """Return the offsets, sizes and times of partitions: in a folder those that were found in time, at least of the first one."""
    if source.log_dir is None:
        return _reported(source, keys[:MAX_REPORTED])
    return _found(context, source.log_dir, keys, job, limit_s)


def _found(
    context: Context, log_dir: LogDir, keys: list[TopicPartition], job: Job, limit_s: float | None
) -> Mapping[TopicPartition, Summary]:
    end = None if limit_s is None else time.monotonic() + limit_s
    found: dict[TopicPartition, Summary] = {}
    for key in keys:
        if found and (job.is_late() or (end is not None and time.monotonic() > end)):
            break
        found[key] = context.summaries.of(log_dir, key)
    return found


def _reported(source: Source, keys: list[TopicPartition]) -> dict[TopicPartition, Summary]:
    """Return what brokers report about partitions that have a leader. Brokers report times only for records that they are asked
    to find.
    """
    from tidelog.client.connections.cluster import NO_LEADER

    assert source.cluster is not None
    without = [key for key in keys if source.cluster.leader(key).node_id == NO_LEADER]
    if without:
        source.cluster.refresh({key.topic for key in without})
        keys = [key for key in keys if source.cluster.leader(key).node_id != NO_LEADER]
    ends = source.ends(keys)
    sizes: Mapping[TopicPartition, int] = {}
    with suppress(TidelogError):  # Sizes are unknown if the user may not ask for them.
        sizes = source.sizes(keys)
    first, last = _times(source, keys, EARLIEST), _times(source, keys, MAX_TIMESTAMP)
    return {
        key: Summary(
            *(one.log_start_offset, one.log_end_offset, one.end_offset, sizes.get(key, 0), 0),
            *(first.get(key, NO_TIMESTAMP), last.get(key, NO_TIMESTAMP)),
        )
        for key, one in ends.items()
    }


def _times(source: Source, keys: list[TopicPartition], target: int) -> dict[TopicPartition, int]:
    if target == EARLIEST:
        target = 0  # The first record with a timestamp: brokers report no time for the special target.
    try:
        found = source.find(dict.fromkeys(keys, target))
    except (TidelogError, UnsupportedForMessageFormatError):
        return {}  # Releases before 3.0 cannot search for the largest timestamp; old formats have none.
    return {key: one.timestamp for key, one in found.items() if one is not None}


def _config(source: Source, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings for retention and compaction, and the source of each."""
    config: LogConfig | None = None
    origins: dict[str, str] = {}
    shown = ("cleanup.policy", "retention.ms", "retention.bytes")
    if source.log_dir is not None:
        from tidelog.storage.topics.topic_settings import TopicSettings

        with suppress(TidelogError):  # The topic is shown even if the folder's metadata is damaged.
            settings = TopicSettings(source.log_dir.metadata_path).of(name)
            config, origins = settings.config, {one: settings.source(one).value for one in shown}
    elif source.cluster is not None:
        from tidelog.client.reading.topic_configs import retention_configs

        config = retention_configs(source.cluster, [name]).get(name)
        origins = dict.fromkeys(shown, "the brokers")
    properties = {} if config is None else config.to_properties()
    return {one: properties.get(one) for one in shown if one in properties}, origins
