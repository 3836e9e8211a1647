"""Tables and findings about rolling, and about rolling and retention together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from studies.case import Measurements
from studies.chapter import Cell, Millis, Table
from studies.policies import broker
from studies.policies.by_hand import RetentionRule
from studies.policies.measuring import (
    COMBINED,
    ENGINE,
    ROLLING,
    RULES_AND_TYPES,
    combined_subject,
    measured,
    rule_subject,
)
from studies.policies.rolling_rules import RollingRule
from studies.policies.scenarios import QUIET, SEGMENT_MS
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

FROM = {
    RollingRule.CREATE_TIME_OF_SEGMENT: "before KIP-33",
    RollingRule.FIRST_MESSAGE: "KIP-33's rolling section; Kafka; the engine",
    RollingRule.LARGEST_TIMESTAMP: "KIP-33's Public Interfaces",
    RollingRule.CLOCK_AND_FIRST_MESSAGE: "KIP-32",
}


def _value(found: Measurements, case: str, rule: RollingRule, kind: str, metric: str) -> float:
    return found.value(ROLLING, case, rule_subject(rule, kind), metric)


def one_message(found: Measurements) -> Table:
    """The number of segments, and of those with one message."""
    rows: list[tuple[Cell, ...]] = []
    for rule, kind in RULES_AND_TYPES:
        cells = [
            f"{_value(found, one.name, rule, kind, 'one_message'):.0f} of {_value(found, one.name, rule, kind, 'segments'):.0f}"
            for one in measured(found, ROLLING)
        ]
        rows.append((rule_subject(rule, kind), FROM[rule], *cells))
    return Table(
        "policies-rolling-one-message",
        "Segments of one message, of all segments",
        ("rule", "from", *(one.name for one in measured(found, ROLLING))),
        tuple(rows),
        "KIP-32, time based log rolling: patterns 2 and 3, robustness",
        notes=("the last segment is not finished and counts as a segment only",),
    )


def active(found: Measurements) -> Table:
    """How long a segment stays active."""
    rows: list[tuple[Cell, ...]] = [
        (
            rule_subject(rule, kind),
            *(Millis(_value(found, one.name, rule, kind, "longest_active_ms")) for one in measured(found, ROLLING)),
        )
        for rule, kind in RULES_AND_TYPES
    ]
    return Table(
        "policies-rolling-active",
        "How long a segment stays the active one, at most",
        ("rule", *(one.name for one in measured(found, ROLLING))),
        tuple(rows),
        "KIP-32: rolling by time is there so that a low volume topic does not stay one active segment",
        (f"segment.ms = {SEGMENT_MS:,} (3 hours); the quiet topic gets a message an hour",),
    )


def spans(found: Measurements) -> Table:
    """The smallest, median and largest span, for the patterns and the quiet topic."""
    rows: list[tuple[Cell, ...]] = []
    shown = ("small latency", "large latency", "mixed latency", "one from the future", QUIET.name)
    for case in (one for one in shown if one in found.cases(ROLLING)):
        for rule, kind in RULES_AND_TYPES:
            rows.append(
                (
                    case,
                    rule_subject(rule, kind),
                    int(_value(found, case, rule, kind, "segments")),
                    int(_value(found, case, rule, kind, "one_message")),
                    *(
                        Millis(_value(found, case, rule, kind, f"{what}_ms"))
                        for what in ("smallest_span", "median_span", "largest_span", "worst_off")
                    ),
                )
            )
    return Table(
        "policies-rolling-spans",
        "Spans of segments, by rule",
        (
            "scenario",
            "rule",
            "segments",
            "of one message",
            "smallest span",
            "median",
            "largest",
            "active time off segment.ms, at worst",
        ),
        tuple(rows),
        "KIP-33, enforce time based log rolling; KIP-32",
        notes=("a span is from the first arrival to the last, of finished segments where there are any",),
    )


def engine(found: Measurements) -> Table:
    """The accepted rule compared with the real engine."""
    rows: list[tuple[Cell, ...]] = []
    for one in measured(found, ROLLING):
        for kind in broker.TYPES:
            subject = f"{ENGINE}, {kind}"
            value = partial(found.value, ROLLING, one.name, subject)
            same = bool(value("same as the rule")) and bool(value("same after a copy"))
            rows.append(
                (
                    one.name,
                    kind,
                    int(_value(found, one.name, RollingRule.FIRST_MESSAGE, kind, "segments")),
                    int(value("segments")),
                    int(value("rolled by time")),
                    int(value("one-batch segments")),
                    "the same, on a follower too" if same else "not the same",
                )
            )
    return Table(
        "policies-rolling-engine",
        "The accepted rule and the real engine, on the same messages",
        ("scenario", "timestamps", "segments by the rule", "of the engine", "rolled by time", "of one batch", "boundaries"),
        tuple(rows),
        "KIP-33, enforce time based log rolling",
        notes=("rolled by time and of one batch are the engine's own counters (`LogManager.statistics`)",),
    )


def copied(found: Measurements) -> Table:
    """The effect of a copy to another broker on the segments."""
    rows: list[tuple[Cell, ...]] = []
    for rule, kind in RULES_AND_TYPES:
        cells: list[Cell] = []
        for case in ("small latency", "mixed latency"):
            before, after, alone = (
                int(_value(found, case, rule, kind, metric))
                for metric in ("segments", "segments after a copy", "one-message segments after a copy")
            )
            cells += [before, after, alone]
        rows.append((rule_subject(rule, kind), *cells))
    return Table(
        "policies-rolling-copied",
        "Segments before and after a replica is reassigned",
        (
            "rule",
            "small latency: segments",
            "after the copy",
            "of one message",
            "mixed latency: segments",
            "after the copy",
            "of one message",
        ),
        tuple(rows),
        "KIP-32 and KIP-33, motivation: rolling breaks for a newly created replica",
        ("the new broker appends everything at the end of the run, at once; each message is a batch of its own",),
    )


def combined(found: Measurements) -> Table:
    """How long after its due time the last message is deleted, by both rules."""
    rows: list[tuple[Cell, ...]] = []
    for case in found.cases(COMBINED):
        for rule, kind in RULES_AND_TYPES:

            def value(
                retention: RetentionRule, metric: str, case: str = case, rule: RollingRule = rule, kind: str = kind
            ) -> float:
                return found.value(COMBINED, case, combined_subject(rule, kind, retention), metric)

            rows.append(
                (
                    case,
                    rule_subject(rule, kind),
                    *(Millis(value(one, "latest after due")) for one in RetentionRule),
                    *(int(value(one, "early")) for one in RetentionRule),
                    int(value(RetentionRule.LARGEST, "left")),
                )
            )
    names = tuple(one.value for one in RetentionRule)
    return Table(
        "policies-combined",
        "Rolling and retention together: how long after its due time the latest message goes",
        (
            "scenario",
            "rolling",
            *(f"retention by {name}" for name in names),
            *(f"too early, by {name}" for name in names),
            "left at the end",
        ),
        tuple(rows),
        "KIP-32: retention by the last message's LogAppendTime; KIP-33: by the largest timestamp; before: by the file's time",
        (
            "a message is due when it is retention.ms old by true age; both rules see the same timestamps",
            "played back over arrays, with the engine's retention rule",
        ),
        (
            "left at the end is under retention by the largest timestamp",
            "an active segment that is due is rolled and deleted, as in Kafka; one that still gets messages is never due",
        ),
    )


def findings(found: Measurements) -> Iterable[str]:
    """Return the measured results that contradict the documents or are unexpected."""
    largest = RollingRule.LARGEST_TIMESTAMP
    steady = _value(found, "small latency", largest, LOG_APPEND_TIME, "segments")
    alone = _value(found, "large latency", largest, CREATE_TIME, "one_message")
    messages = _value(found, "large latency", largest, CREATE_TIME, "messages")
    yield (
        f"KIP-33 contradicts itself about rolling, and its Public Interfaces would not have worked: as long as messages keep "
        f"coming the time since the largest timestamp starts over (segments in five days of small latency: {steady:.0f}), and "
        f"with a latency above segment.ms every message rolls ({alone:.0f} of {messages:.0f} alone under large latency)."
    )
    accepted = [
        _value(found, one.name, RollingRule.FIRST_MESSAGE, CREATE_TIME, "one_message") for one in measured(found, ROLLING)
    ]
    clocked = [
        _value(found, one.name, RollingRule.CLOCK_AND_FIRST_MESSAGE, CREATE_TIME, "one_message")
        for one in measured(found, ROLLING)
    ]
    yield (
        f"The segments of one message that KIP-32 fears with CreateTime come from comparing the clock with a timestamp "
        f"({sum(clocked):.0f} over all scenarios); comparing timestamps with each other, as was accepted, makes "
        f"{sum(accepted):.0f}."
    )
    future = _value(found, "one from the future", RollingRule.FIRST_MESSAGE, CREATE_TIME, "longest_active_ms") / 3_600_000
    mixed = _value(found, "mixed latency", RollingRule.FIRST_MESSAGE, CREATE_TIME, "longest_active_ms") / 3_600_000
    yield (
        f"What the accepted rule does with CreateTime is the opposite: segments that do not roll. A future timestamp that begins "
        f"a segment keeps it active for {future:.0f} hours, to the end of the messages; where only late messages come, after "
        f"fresh ones, {mixed:.0f} hours."
    )
    clock_copy = _value(found, "small latency", RollingRule.CLOCK_AND_FIRST_MESSAGE, LOG_APPEND_TIME, "segments after a copy")
    event_copy = _value(found, "small latency", RollingRule.FIRST_MESSAGE, LOG_APPEND_TIME, "segments after a copy")
    yield (
        f"A rule that looks at the clock breaks on a new replica even with LogAppendTime: {clock_copy:.0f} segments after a "
        f"copy, against {event_copy:.0f} by the first message's timestamp, the same as before."
    )
    early = found.value(
        COMBINED,
        "mixed latency",
        combined_subject(RollingRule.FIRST_MESSAGE, CREATE_TIME, RetentionRule.LAST),
        "early",
    )
    if early:
        yield (
            f"KIP-32's retention by the last message of a segment needs LogAppendTime: with CreateTime and mixed latency it "
            f"deletes {early:.0f} messages too early, where the largest timestamp deletes none."
        )
