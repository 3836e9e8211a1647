"""The measurements of the parts: retention on the real engine, rolling by each rule, both together, a sweep of latencies.

| part | a case | a subject |
|---|---|---|
| `retention` | a scenario | a timestamp type and a cluster; both clusters; with the sanity check; file times |
| `rolling` | a scenario | a rolling rule and a timestamp type |
| `combined` | a scenario | a rolling rule, a timestamp type, a retention rule |
| `sweep` | a latency over retention.ms or over segment.ms | a timestamp type, or a rule |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from studies.case import Measurement, Measurements
from studies.policies import broker, by_hand
from studies.policies.broker import Kept
from studies.policies.by_hand import RetentionRule
from studies.policies.lateness import Divergence, Lateness, apart, divergence, lateness, steps
from studies.policies.rolling_rules import RollingRule, segment_starts, segmentation
from studies.policies.scenarios import (
    AFTER_MAX_MS,
    END_MS,
    MADE_DAYS,
    RETENTION_MS,
    RIGHT,
    SEED,
    SEGMENT_MS,
    Scenario,
    scenario,
)
from studies.workload import (
    DAY_MS,
    EPOCH_MS,
    MINUTE_MS,
    MIXED_LATENCY,
    Int64s,
    Latency,
    Messages,
    Workload,
    generate,
)
from tidelog.config import CREATE_TIME, LOG_APPEND_TIME

RETENTION, ROLLING, COMBINED, SWEEP = "retention", "rolling", "combined", "sweep"

SANITY = "CreateTime, message.timestamp.after.max.ms"
PLAIN_CLOCK = "LogAppendTime, Kafka's plain clock"
FILE_TIMES = "file times"
FILE_TIMES_COPIED = "file times, copied on day 4"
COPIED_MS = EPOCH_MS + 3 * DAY_MS
BOTH = "both clusters"
ENGINE = "engine"

RULES_AND_TYPES = (
    (RollingRule.CREATE_TIME_OF_SEGMENT, CREATE_TIME),
    *((rule, kind) for rule in list(RollingRule)[1:] for kind in broker.TYPES),
)
"""Every rolling rule with each timestamp type that affects it."""


def on_cluster(timestamp_type: str, cluster: int) -> str:
    """Return the subject name of one broker's run."""
    return f"{timestamp_type}, cluster {cluster}"


def rule_subject(rule: RollingRule, timestamp_type: str) -> str:
    """Return the subject name of a rolling rule."""
    return rule.value if rule is RollingRule.CREATE_TIME_OF_SEGMENT else f"{rule.value}, {timestamp_type}"


def measured(found: Measurements, part: str) -> list[Scenario]:
    """Return the scenarios that were measured in a part, because small runs omit some."""
    return [scenario(name) for name in found.cases(part)]


# --- retention


def measure_retention(made: Scenario, scale: float, work_dir: Path) -> Iterator[Measurement]:
    """Run the scenario's messages through two real brokers, with each timestamp type."""
    first, second = made.messages(scale)
    for kind in broker.TYPES:
        one = broker.run(work_dir / f"{kind}1", first, kind, clock_error=made.broker)
        two = broker.run(work_dir / f"{kind}2", second, kind)
        for cluster, kept in ((1, one), (2, two)):
            yield from _kept(made.name, on_cluster(kind, cluster), kept)
        yield from _apart(made.name, kind, one, two)
    if made.far_off_ms > 0 or (made.wrong_clock is not None and made.wrong_clock.offset_ms > 0):
        checked = {"message.timestamp.after.max.ms": AFTER_MAX_MS}
        yield from _kept(made.name, SANITY, broker.run(work_dir / "checked", first, CREATE_TIME, properties=checked))
    if made.broker != RIGHT:
        plain = {"tidelog.log.append.time.monotonic": False}
        found = broker.run(work_dir / "plain", first, LOG_APPEND_TIME, clock_error=made.broker, properties=plain)
        yield from _kept(made.name, PLAIN_CLOCK, found)
    elif made.wrong_clock is None and made.far_off_ms >= 0:
        # File times do not depend on producers' clocks: one scenario with a wrong clock is enough.
        for subject, copied_ms in ((FILE_TIMES, None), (FILE_TIMES_COPIED, COPIED_MS)):
            gone = by_hand.play(
                RollingRule.CREATE_TIME_OF_SEGMENT,
                RetentionRule.FILE_TIME,
                first.create_ms,
                first.arrival_ms,
                copied_ms=copied_ms,
            )
            yield from _late(RETENTION, made.name, subject, lateness(first.made_ms, first.arrival_ms, gone))


def _kept(case: str, subject: str, kept: Kept) -> Iterator[Measurement]:
    messages = kept.messages
    yield from _late(RETENTION, case, subject, lateness(messages.made_ms, messages.arrival_ms, kept.gone_ms))
    sizes = np.array([size for _, size in kept.checks], np.int64)
    left = kept.gone_ms == broker.NEVER
    pinned = int((kept.starts >= int(left.argmax())).sum()) if left.any() else 0
    yield Measurement(RETENTION, case, subject, "mean bytes", float(sizes.mean()), "bytes")
    yield Measurement(RETENTION, case, subject, "most bytes", float(sizes.max()), "bytes")
    yield Measurement(RETENTION, case, subject, "bytes at the end", float(sizes[-1]), "bytes")
    yield Measurement(RETENTION, case, subject, "segments", len(kept.starts), "segments")
    yield Measurement(RETENTION, case, subject, "pinned segments", pinned, "segments")
    yield Measurement(RETENTION, case, subject, "times that go back", int((np.diff(kept.stamps_ms) < 0).sum()), "messages")
    yield Measurement(RETENTION, case, subject, "refused", len(kept.refused), "messages")
    yield Measurement(RETENTION, case, subject, "rolled by time", kept.rolled_by_time, "segments")
    yield Measurement(RETENTION, case, subject, "one-batch segments", kept.one_batch_segments, "segments")
    if kept.goes_ms is not None:
        yield Measurement(RETENTION, case, subject, "pinned for", kept.goes_ms - END_MS, "ms")
    yield Measurement(RETENTION, case, subject, "bytes over time", text=encode_steps(kept.checks))


def _late(part: str, case: str, subject: str, found: Lateness) -> Iterator[Measurement]:
    units = {
        "messages": "messages",
        "early": "messages",
        "long": "messages",
        "left": "messages",
        "unread": "messages",
    }
    for name, value in found._asdict().items():
        yield Measurement(part, case, subject, name, float(value), units.get(name, "ms"))


def _apart(case: str, kind: str, one: Kept, two: Kept) -> Iterator[Measurement]:
    subject = f"{kind}, {BOTH}"
    by_number = [np.argsort(kept.messages.numbers) for kept in (one, two)]
    (arrival_1, gone_1), (arrival_2, gone_2) = (
        (kept.messages.arrival_ms[order], kept.gone_ms[order]) for kept, order in zip((one, two), by_number, strict=True)
    )
    first, last = apart(arrival_1, gone_1, arrival_2, gone_2)
    found: Divergence = divergence(first, last)
    for name, value in found._asdict().items():
        yield Measurement(RETENTION, case, subject, name, float(value), "messages" if name in ("messages", "most") else "ms")
    yield Measurement(RETENTION, case, subject, "apart over time", text=encode_steps(steps(first, last)))


def encode_steps(points: Iterable[tuple[int, int]]) -> str:
    """Return a time series as text, "minute:value …" since the first message, with an entry for each change."""
    found: list[str] = []
    before: int | None = None
    for at, value in points:
        if value != before:
            found.append(f"{(at - EPOCH_MS) / MINUTE_MS:g}:{value}")
        before = value
    return " ".join(found)


def decode_steps(text: str) -> list[tuple[float, float]]:
    """Return the points of `encode_steps`: minutes and values."""
    pairs = (point.partition(":") for point in text.split())
    return [(float(minute), float(value)) for minute, _, value in pairs]


# --- rolling


def append_times(made: Scenario, messages: Messages) -> tuple[Int64s, Int64s]:
    """Return the broker's clock at each append, and the LogAppendTime that it assigns, which never decreases (KIP-32)."""
    clock = messages.arrival_ms + np.array([made.broker.at(one) for one in messages.arrival_ms.tolist()], np.int64)
    return clock, np.maximum.accumulate(clock)


def measure_rolling(made: Scenario, scale: float, work_dir: Path) -> Iterator[Measurement]:
    """Roll the scenario's messages by each rule, and compare the accepted rule with the engine."""
    messages, _ = made.messages(scale)
    clock, append_ms = append_times(made, messages)
    timestamps = {CREATE_TIME: messages.create_ms, LOG_APPEND_TIME: append_ms}
    case = made.name
    for rule, kind in RULES_AND_TYPES:
        subject = rule_subject(rule, kind)
        starts = segment_starts(rule, timestamps[kind], clock, SEGMENT_MS, EPOCH_MS + made.broker.at(EPOCH_MS))
        found = segmentation(starts, messages.arrival_ms, SEGMENT_MS)
        yield Measurement(ROLLING, case, subject, "messages", len(messages), "messages")
        for name, value in found._asdict().items():
            yield Measurement(
                ROLLING, case, subject, name, float(value), "segments" if name in ("segments", "one_message") else "ms"
            )
        copied = segment_starts(rule, timestamps[kind], np.full(len(clock), END_MS, np.int64), SEGMENT_MS)
        after = segmentation(copied, messages.arrival_ms, SEGMENT_MS)
        yield Measurement(ROLLING, case, subject, "segments after a copy", after.segments, "segments")
        yield Measurement(ROLLING, case, subject, "one-message segments after a copy", after.one_message, "segments")
        if rule is RollingRule.FIRST_MESSAGE:
            kept = broker.run(work_dir / kind, messages, kind, clock_error=made.broker, retention_ms=-1)
            copy_starts = broker.copy_starts(work_dir / kind, work_dir / f"{kind} copy", END_MS)
            subject = f"{ENGINE}, {kind}"
            yield Measurement(ROLLING, case, subject, "segments", len(kept.starts), "segments")
            yield Measurement(ROLLING, case, subject, "rolled by time", kept.rolled_by_time, "segments")
            yield Measurement(ROLLING, case, subject, "one-batch segments", kept.one_batch_segments, "segments")
            yield Measurement(ROLLING, case, subject, "same as the rule", np.array_equal(kept.starts, starts))
            yield Measurement(ROLLING, case, subject, "same after a copy", np.array_equal(copy_starts, copied))


# --- both together


def measure_combined(made: Scenario, scale: float) -> Iterator[Measurement]:
    """Apply each rolling rule and each retention rule to the scenario's messages. The broker's clock is correct."""
    messages, _ = made.messages(scale)
    for rule, kind in RULES_AND_TYPES:
        timestamps = messages.create_ms if kind == CREATE_TIME else messages.arrival_ms
        for retention in RetentionRule:
            gone = by_hand.play(rule, retention, timestamps, messages.arrival_ms)
            due = messages.made_ms + RETENTION_MS
            late = np.minimum(gone, END_MS) - due
            subject = combined_subject(rule, kind, retention)
            yield Measurement(COMBINED, made.name, subject, "latest after due", float(late.max()), "ms")
            yield Measurement(COMBINED, made.name, subject, "last message after due", float(late[-1]), "ms")
            yield Measurement(COMBINED, made.name, subject, "mean after due", float(late.mean()), "ms")
            yield Measurement(COMBINED, made.name, subject, "early", float((late < 0).sum()), "messages")
            yield Measurement(COMBINED, made.name, subject, "left", float((gone == by_hand.NEVER).sum()), "messages")


def combined_subject(rule: RollingRule, kind: str, retention: RetentionRule) -> str:
    """Return the subject name of a pair of rules."""
    return f"{rule_subject(rule, kind)} | {retention.value}"


# --- where the preference flips

RATIOS = (0.0, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)
"""The latency as a share of retention.ms."""
ROLL_RATIOS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0)
"""The latency as a share of segment.ms."""
MIXED_RATIOS = (0.05, 0.125, 0.25, 0.5, 1.0, 1.5)
"""The additional latency of half of the messages, as a share of retention.ms."""
SEEDS = (SEED, SEED + 1, SEED + 2)


def measure_sweep(scale: float) -> Iterator[Measurement]:
    """Return the cases. In the first, all messages are equally late, by growing shares of retention.ms and of segment.ms; in
    the others, half of the messages are.
    """
    for ratio in RATIOS:
        yield from _both_types(f"latency {ratio:g} × retention.ms", "", _late_alike(round(ratio * RETENTION_MS), scale))
    for ratio in MIXED_RATIOS:
        for seed in SEEDS:
            messages = _half_late(round(ratio * RETENTION_MS), scale, seed)
            yield from _both_types(f"half of them {ratio:g} × retention.ms later", f", seed {seed}", messages)
    for ratio in ROLL_RATIOS:
        messages = _late_alike(round(ratio * SEGMENT_MS), scale)
        for rule in (RollingRule.CLOCK_AND_FIRST_MESSAGE, RollingRule.FIRST_MESSAGE, RollingRule.LARGEST_TIMESTAMP):
            starts = segment_starts(rule, messages.create_ms, messages.arrival_ms, SEGMENT_MS)
            found_segments = segmentation(starts, messages.arrival_ms, SEGMENT_MS)
            case = f"latency {ratio:g} × segment.ms"
            subject = rule_subject(rule, CREATE_TIME)
            yield Measurement(SWEEP, case, subject, "segments", found_segments.segments, "segments")
            yield Measurement(SWEEP, case, subject, "one_message", found_segments.one_message, "segments")


def _both_types(case: str, suffix: str, messages: Messages) -> Iterator[Measurement]:
    """Apply the accepted rules to the messages, with both types."""
    for kind, timestamps in ((CREATE_TIME, messages.create_ms), (LOG_APPEND_TIME, messages.arrival_ms)):
        gone = by_hand.play(RollingRule.FIRST_MESSAGE, RetentionRule.LARGEST, timestamps, messages.arrival_ms)
        found = lateness(messages.made_ms, messages.arrival_ms, gone)
        for name in ("off_ms", "age_off_ms", "stay_off_ms", "unread", "messages"):
            yield Measurement(SWEEP, case, kind + suffix, name, float(getattr(found, name)))


def _half_late(late_ms: int, scale: float, seed: int) -> Messages:
    mixed = dataclasses.replace(MIXED_LATENCY, late_ms=late_ms)
    return generate(dataclasses.replace(scenario("mixed latency").workload(scale), latency=mixed, seed=seed))


def _late_alike(latency_ms: int, scale: float) -> Messages:
    interval_ms = 4 * MINUTE_MS / scale
    records = max(8, round(MADE_DAYS * DAY_MS / interval_ms))
    return generate(Workload("late alike", SEED, records, interval_ms, Latency("all alike", 5 + latency_ms)))
