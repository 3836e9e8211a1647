"""The chapter's plots, made from measurements."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Mark, Plot, Series
from studies.policies import broker
from studies.policies.measuring import (
    BOTH,
    RETENTION,
    ROLLING,
    RULES_AND_TYPES,
    SANITY,
    decode_steps,
    on_cluster,
    rule_subject,
)
from studies.workload import EPOCH_MS, HOUR_MS, MINUTE_MS
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

FUTURE = "one from the future"


def plots(found: Measurements) -> dict[str, Plot]:
    """Return the plots by id."""
    return {one.id: one for one in (_disk(found), _one_message(found), _apart(found), _off(found))}


def _steps(name: str, text: str, scale: float = 1.0) -> Series:
    points = decode_steps(text)
    return Series(name, tuple(EPOCH_MS + minute * MINUTE_MS for minute, _ in points), tuple(value * scale for _, value in points))


def _to_the_end(*all_series: Series) -> tuple[Series, ...]:
    """Extend all series to the last change of any of them: measurements record only changes, so a missing one means no change."""
    ends = [one.xs[-1] for one in all_series if one.xs]
    return tuple(
        one._replace(xs=(*one.xs, max(ends)), ys=(*one.ys, one.ys[-1])) if one.xs and one.xs[-1] != max(ends) else one
        for one in all_series
    )


def _disk(found: Measurements) -> Plot:
    subjects = {
        "CreateTime": on_cluster(CREATE_TIME, 1),
        "CreateTime, checked by message.timestamp.after.max.ms": SANITY,
        "LogAppendTime": on_cluster(LOG_APPEND_TIME, 1),
    }
    return Plot(
        "policies-disk",
        "Disk kept, with one timestamp 30 days in the future",
        _to_the_end(
            *(
                _steps(name, found.text(RETENTION, FUTURE, subject, "bytes over time"), 1 / 1024)
                for name, subject in subjects.items()
            )
        ),
        Mark.STEPS,
        "time",
        "KiB of log",
        x_is_time=True,
        caption="What comes behind the future timestamp stays as long as that does; a message that is refused keeps nothing.",
    )


def _one_message(found: Measurements) -> Plot:
    counts = {
        name: [found.value(ROLLING, name, rule_subject(rule, kind), "one_message") for rule, kind in RULES_AND_TYPES]
        for name in found.cases(ROLLING)
    }
    names = tuple(name for name, of_rules in counts.items() if any(of_rules))
    return Plot(
        "policies-one-message",
        "Segments of one message, by rule",
        tuple(
            Series(rule_subject(rule, kind), names, tuple(counts[name][index] for name in names))
            for index, (rule, kind) in enumerate(RULES_AND_TYPES)
        ),
        Mark.BARS,
        "scenario",
        "segments of one message",
        log_y=True,
        caption="Scenarios in which no rule makes any are left out.",
    )


def _apart(found: Measurements) -> Plot:
    case = "large latency"
    return Plot(
        "policies-divergence",
        "Messages that only one of two clusters still has: large latency",
        _to_the_end(*(_steps(kind, found.text(RETENTION, case, f"{kind}, {BOTH}", "apart over time")) for kind in broker.TYPES)),
        Mark.STEPS,
        "time",
        "messages deleted on one cluster only",
        x_is_time=True,
    )


def _off(found: Measurements) -> Plot:
    names = tuple(found.cases(RETENTION))

    def bars(name: str, kind: str, count: str, mean: str) -> Series:
        values = []
        for case in names:
            subject = on_cluster(kind, 1)
            total = found.value(RETENTION, case, subject, count) * found.value(RETENTION, case, subject, mean)
            values.append(total / found.value(RETENTION, case, subject, "messages") / HOUR_MS)
        return Series(name, names, tuple(values))

    return Plot(
        "policies-off",
        "Too early and too long, by scenario",
        tuple(
            bars(f"{kind}, {what}", kind, count, mean)
            for kind in broker.TYPES
            for what, count, mean in (("too early", "early", "early_mean_ms"), ("too long", "long", "long_mean_ms"))
        ),
        Mark.BARS,
        "scenario",
        "hours, on average over all messages of cluster 1",
    )
