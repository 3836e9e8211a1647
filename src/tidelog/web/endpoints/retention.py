"""`/api/retention`: when each segment is deleted, and which record keeps it until then."""

from __future__ import annotations

from tidelog.storage.retention_forecast import Forecast, forecast
from tidelog.storage.topics.topic_settings import TopicSettings
from tidelog.web.context import Answer, Context, known_ms, plain
from tidelog.web.endpoints.segments import files_of
from tidelog.web.endpoints.topics import point
from tidelog.web.jobs import Job
from tidelog.web.query import Query

NAMES = ("cleanup.policy", "retention.ms", "retention.bytes")

MAX_SEGMENTS = 2000
"""The most segments in a response, the oldest of each partition first."""


def retention(context: Context, query: Query, job: Job) -> Answer:
    """Return the forecast for a topic's segments, from the settings that the folder contains."""
    topic, wanted = query.required("topic"), query.partitions()
    now_ms = context.clock.now_ms()
    answer: list[Answer] = []
    is_whole = True
    with context.sources.named(query.text("source")).borrowed() as source:
        log_dir = files_of(source)
        settings = TopicSettings(log_dir.metadata_path)
        known = settings.of(topic)
        for number in wanted or log_dir.partitions(topic):
            with log_dir.log(topic, number) as log:
                log.check_names()
                found = forecast(log, known.config, now_ms)
            shown = [_segment(one, now_ms) for one in found[: MAX_SEGMENTS - sum(len(one["segments"]) for one in answer)]]
            answer.append({"partition": number, "segments": shown, "total": len(found)})
            is_whole = is_whole and len(shown) == len(found)
            if job.is_late():
                is_whole = False
                break
        is_backup = point(source) is not None
    properties = known.config.to_properties()
    notes = [] if known.is_known else ["the topic's configuration is not in the folder's metadata"]
    if is_backup:
        notes.append("a backup deletes no segment by retention: this is what a broker with the topic's settings would delete")
    if settings.is_kafkas_since:
        notes.append("Kafka has served the folder since Tidelog last did: Kafka's configuration is not in the folder")
    return {
        "now_ms": plain(now_ms),
        "settings": {name: {"value": plain_text(properties.get(name)), "from": known.source(name).value} for name in NAMES},
        "partitions": answer,
        "done": is_whole,
        "notes": notes,
    }


def plain_text(value: object) -> object:
    """Return a setting's value for JSON."""
    return plain(value) if isinstance(value, int) else value


def _segment(one: Forecast, now_ms: int) -> Answer:
    keeper, own = one.keeper, one.own
    return {
        "base_offset": plain(one.base_offset),
        "end_offset": plain(one.next_offset),
        "bytes": plain(one.size_bytes),
        "max_ms": None if own is None else known_ms(own.timestamp),
        "max_offset": None if own is None else plain(own.offset),
        "goes_ms": plain(one.goes_ms),
        "goes_now": one.goes_ms is not None and one.goes_ms <= now_ms,
        "reason": one.reason,
        "kept_by": None
        if keeper is None
        else {
            "segment": plain(keeper.base_offset),
            "offset": plain(keeper.offset),
            "timestamp_ms": known_ms(keeper.timestamp),
            "future": keeper.timestamp > now_ms,
        },
    }
