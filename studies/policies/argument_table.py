"""The documents' arguments in prose, each with its measured result."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Claim, Table, Verdict
from studies.policies import broker, preferences
from studies.policies.measuring import PLAIN_CLOCK, RETENTION, ROLLING, measured, on_cluster, rule_subject
from studies.policies.preferences import CT, LAT, RETENTION_CRITERIA, preferred, rolling_criteria
from studies.policies.rolling_rules import RollingRule
from studies.policies.scenarios import BROKER, PATTERN_2, PATTERNS, QUIET, ROBUSTNESS, SEGMENT_MS
from studies.workload import HOUR_MS
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

JUMP = "broker jumps 30 days"


def arguments(found: Measurements) -> Table:
    """Every sentence that a measurement tests."""
    rows: list[tuple[Cell, ...]] = [
        ("robustness", "the article, for LogAppendTime", _robust(found)),
        ("monotonic times", "the article, for LogAppendTime", _never_back(found)),
        ("determinism", "the article, for LogAppendTime", _deterministic(found)),
        ("retention by age", "the article, for CreateTime", _when_made(found)),
        ("all patterns together", "KIP-32, log retention", _in_reality(found)),
        ("whose time rolls", "KIP-32, time based log rolling", _server_side(found)),
        ("low volume topics", "KIP-32, time based log rolling", _low_volume(found)),
        ("two rules for rolling", "KIP-33, public interfaces; time based log rolling", _largest_or_first(found)),
    ]
    return Table(
        "policies-arguments",
        "What else the documents say",
        ("about", "from", "claim"),
        tuple(rows),
        "the article on KIP-32 and KIP-33 (what speaks for either timestamp); KIP-32; KIP-33",
        ("h: hours off a message by criterion 1 of retention, where nothing else is said",),
    )


def _is(holds: bool) -> Verdict:
    return Verdict.CONFIRMED if holds else Verdict.REFUTED


def _robust(found: Measurements) -> Claim:
    create, append = preferences.figures(found, RETENTION_CRITERIA[0], ROBUSTNESS)
    jump = {kind: found.value(RETENTION, JUMP, on_cluster(kind, 1), "off_ms") for kind in broker.TYPES}
    clients, own = append < create, jump[LOG_APPEND_TIME] <= jump[CREATE_TIME]
    return Claim(
        "the broker is more robust",
        f"producers' clocks wrong: CT {_hours(create)}, LAT {_hours(append)}; the broker's own clock jumps 30 days: "
        f"CT {_hours(jump[CREATE_TIME])}, LAT {_hours(jump[LOG_APPEND_TIME])}",
        _is(clients) if clients == own else Verdict.PARTLY,
    )


def _never_back(found: Measurements) -> Claim:
    back = {
        subject: sum(
            found.value(RETENTION, one.name, subject, "times that go back")
            for one in measured(found, RETENTION)
            if found.get(RETENTION, one.name, subject, "times that go back") is not None
        )
        for subject in (on_cluster(CREATE_TIME, 1), on_cluster(LOG_APPEND_TIME, 1), PLAIN_CLOCK)
    }
    create, append, plain = back.values()
    return Claim(
        "monotonically increasing",
        f"times that go back, over all scenarios: LAT {append:.0f}, with Kafka's plain clock {plain:.0f}, CT {create:.0f}",
        _is(append == 0),
    )


def _deterministic(found: Measurements) -> Claim:
    cases = [one.name for one in measured(found, RETENTION) if one.pattern != BROKER]
    stays = {kind: [found.value(RETENTION, case, on_cluster(kind, 1), "stay_off_ms") for case in cases] for kind in broker.TYPES}
    lives = {
        kind: [found.value(ROLLING, case, rule_subject(RollingRule.FIRST_MESSAGE, kind), "longest_active_ms") for case in cases]
        for kind in broker.TYPES
    }
    told = [
        f"{name}: time on the cluster off retention.ms by {_hours(min(stays[kind]))} to {_hours(max(stays[kind]))}, "
        f"longest active segment {_hours(min(lives[kind]))} to {_hours(max(lives[kind]))}"
        for name, kind in ((CT, CREATE_TIME), (LAT, LOG_APPEND_TIME))
    ]
    spread = {kind: max(stays[kind]) - min(stays[kind]) + max(lives[kind]) - min(lives[kind]) for kind in broker.TYPES}
    return Claim(
        "deterministic behavior for log rolling and retention (and of CreateTime: uncertain)",
        f"over what producers and latency do, {'; '.join(told)}",
        _is(spread[LOG_APPEND_TIME] < spread[CREATE_TIME]),
    )


def _when_made(found: Measurements) -> Claim:
    create, append = preferences.figures(found, RETENTION_CRITERIA[1], PATTERN_2)
    return Claim(
        "users may want retention by when a message was made",
        f"only CT does that: under large latency age at deletion is off by {_hours(create)}, by LAT {_hours(append)}",
        _is(create < append),
    )


def _in_reality(found: Measurements) -> Claim:
    figures = {pattern: preferences.figures(found, RETENTION_CRITERIA[0], pattern) for pattern in PATTERNS}
    told, wins = [], []
    for name, patterns in (
        ("all four columns", PATTERNS),
        ("without pattern 2", tuple(one for one in PATTERNS if one != PATTERN_2)),
    ):
        create, append = (sum(figures[one][column] for one in patterns) / len(patterns) for column in (0, 1))
        choice = preferred(create, append, RETENTION_CRITERIA[0].tie)
        wins.append(choice)
        told.append(f"{name}: {choice} (CT {_hours(create)}, LAT {_hours(append)})")
    return Claim(
        "pipelines are seldom late alike, so LogAppendTime is preferable for retention",
        f"on average over {'; '.join(told)}",
        _is(wins[1] == LAT),
    )


def _server_side(found: Measurements) -> Claim:
    criterion = rolling_criteria(RollingRule.FIRST_MESSAGE)[1]
    figures = [preferences.figures(found, criterion, pattern) for pattern in PATTERNS]
    create, append = (max(figure[column] for figure in figures) for column in (0, 1))
    return Claim(
        "server side log rolling makes more sense",
        f"accepted rule, active time off segment.ms at worst, in the worst column: CT {_hours(create)}, LAT {_hours(append)}",
        _is(preferred(create, append, criterion.tie) == LAT),
    )


def _low_volume(found: Measurements) -> Claim:
    case = QUIET.name if QUIET.name in found.cases(ROLLING) else found.cases(ROLLING)[0]
    parts = []
    for rule in RollingRule:
        subject = rule_subject(rule, LOG_APPEND_TIME)
        segments, active = (found.value(ROLLING, case, subject, metric) for metric in ("segments", "longest_active_ms"))
        parts.append((rule, segments, active))
    told = ", ".join(f"{rule.value} {segments:.0f} (active for at most {_hours(active)})" for rule, segments, active in parts)
    accepted = next(segments for rule, segments, _ in parts if rule is RollingRule.FIRST_MESSAGE)
    return Claim(
        "rolling by time keeps a low volume topic from having one segment only",
        f"{case}, segment.ms {_hours(SEGMENT_MS)}, five days; segments with LAT, by {told}",
        _is(accepted > 1),
    )


def _largest_or_first(found: Measurements) -> Claim:
    case = "small latency"
    segments = {
        rule: found.value(ROLLING, case, rule_subject(rule, CREATE_TIME), "segments")
        for rule in (RollingRule.LARGEST_TIMESTAMP, RollingRule.FIRST_MESSAGE)
    }
    same = len(set(segments.values())) == 1
    return Claim(
        "rolls when log.roll.ms has elapsed since the largest timestamp (Public Interfaces), and since the first (rolling)",
        f"not the same: {segments[RollingRule.LARGEST_TIMESTAMP]:.0f} and {segments[RollingRule.FIRST_MESSAGE]:.0f} segments "
        f"under small latency; Kafka and the engine do the second",
        _is(same),
    )


def _hours(value: float) -> str:
    return f"{value / HOUR_MS:.1f} h"
