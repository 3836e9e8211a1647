"""Tables over growing latency, which show when the preferences change."""

from __future__ import annotations

from studies.case import Measurements
from studies.chapter import Cell, Millis, Table
from studies.policies import broker
from studies.policies.measuring import MIXED_RATIOS, RATIOS, ROLL_RATIOS, SEEDS, SWEEP, rule_subject
from studies.policies.preferences import RETENTION_CRITERIA, preferred
from studies.policies.rolling_rules import RollingRule
from tidelog.config import CREATE_TIME


def late_alike(found: Measurements) -> Table:
    """The preference by latency as a share of retention.ms."""
    rows: list[tuple[Cell, ...]] = []
    for ratio in RATIOS:
        create, append = (_value(found, ratio, kind, "off_ms") for kind in broker.TYPES)
        stays = [_value(found, ratio, kind, "stay_off_ms") for kind in broker.TYPES]
        unread = [_value(found, ratio, kind, "unread") / _value(found, ratio, kind, "messages") for kind in broker.TYPES]
        rows.append(
            (
                ratio,
                Millis(create),
                Millis(append),
                preferred(create, append, RETENTION_CRITERIA[0].tie),
                preferred(stays[0], stays[1], RETENTION_CRITERIA[3].tie),
                f"{unread[0]:.0%}",
                f"{unread[1]:.0%}",
                preferred(unread[0], unread[1], 0.01),
            )
        )
    return Table(
        "policies-latency-sweep",
        "Pattern 2: where the preference flips",
        (
            "latency / retention.ms",
            "off, CreateTime",
            "off, LogAppendTime",
            "by criterion 1",
            "by criterion 4",
            "gone within an hour, CreateTime",
            "the same, LogAppendTime",
            "by that",
        ),
        tuple(rows),
        "KIP-32, pattern 2",
        ("all messages are late alike, but for 20 ms; one cluster; played back, with the engine's retention rule",),
        ("a message that is deleted within an hour of its arrival may not have been read by anybody",),
    )


def half_late(found: Measurements) -> Table:
    """The preference by the difference in latency as a share of retention.ms, for several seeds."""
    rows: list[tuple[Cell, ...]] = []
    for ratio in MIXED_RATIOS:
        case = f"half of them {ratio:g} × retention.ms later"
        figures = {
            (metric, seed): [found.value(SWEEP, case, f"{kind}, seed {seed}", metric) for kind in broker.TYPES]
            for metric in ("off_ms", "stay_off_ms")
            for seed in SEEDS
        }
        create, append = (sum(figures["off_ms", seed][column] for seed in SEEDS) / len(SEEDS) for column in (0, 1))
        by_age, by_stay = (
            ", ".join(
                preferred(figures[metric, seed][0], figures[metric, seed][1], RETENTION_CRITERIA[which].tie) for seed in SEEDS
            )
            for metric, which in (("off_ms", 0), ("stay_off_ms", 3))
        )
        rows.append((ratio, Millis(create), Millis(append), by_age, by_stay))
    return Table(
        "policies-mixed-sweep",
        "Pattern 3: where the preference flips",
        (
            "half of them later by, / retention.ms",
            "off, CreateTime",
            "off, LogAppendTime",
            "by criterion 1",
            "by criterion 4",
        ),
        tuple(rows),
        "KIP-32, pattern 3",
        (
            f"one cluster; played back, with the engine's retention rule; seeds {', '.join(map(str, SEEDS))}: off is their mean, "
            "preferences are of each",
        ),
    )


def _value(found: Measurements, ratio: float, kind: str, metric: str) -> float:
    return found.value(SWEEP, f"latency {ratio:g} × retention.ms", kind, metric)


def rolling(found: Measurements) -> Table:
    """Segments of one message under CreateTime, by latency as a share of segment.ms."""
    rules = (RollingRule.CLOCK_AND_FIRST_MESSAGE, RollingRule.LARGEST_TIMESTAMP, RollingRule.FIRST_MESSAGE)
    rows: list[tuple[Cell, ...]] = []
    for ratio in ROLL_RATIOS:
        case = f"latency {ratio:g} × segment.ms"
        cells = [
            f"{found.value(SWEEP, case, rule_subject(rule, CREATE_TIME), 'one_message'):.0f} of "
            f"{found.value(SWEEP, case, rule_subject(rule, CREATE_TIME), 'segments'):.0f}"
            for rule in rules
        ]
        rows.append((ratio, *cells))
    return Table(
        "policies-rolling-sweep",
        "Pattern 2 with CreateTime: segments of one message, of all, as latency grows",
        ("latency / segment.ms", *(rule.value for rule in rules)),
        tuple(rows),
        "KIP-32, time based log rolling, pattern 2",
        ("all messages are late alike, but for 20 ms",),
    )


def preferred_by_age(found: Measurements, ratio: float) -> str:
    """Return the preference by criterion 1 if all messages are late by the share `ratio` of retention.ms."""
    create, append = (_value(found, ratio, kind, "off_ms") for kind in broker.TYPES)
    return preferred(create, append, RETENTION_CRITERIA[0].tie)


def preferred_when_mixed(found: Measurements, ratio: float, seed: int) -> str:
    """Return the preference by criterion 1 if half of the messages are late by that share."""
    case = f"half of them {ratio:g} × retention.ms later"
    create, append = (found.value(SWEEP, case, f"{kind}, seed {seed}", "off_ms") for kind in broker.TYPES)
    return preferred(create, append, RETENTION_CRITERIA[0].tie)


def unread(found: Measurements, ratio: float, kind: str) -> float:
    """Return how many messages are deleted before they can be read, if all are late by `ratio` of retention.ms."""
    return _value(found, ratio, kind, "unread")
