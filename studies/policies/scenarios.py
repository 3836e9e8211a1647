"""The scenarios: KIP-32's three latency patterns, and wrong clocks for its "robustness", on two clusters in a pipeline.

Messages are created for `MADE_DAYS`. Cluster 1 receives them with the pattern's latency. A mirror copies each of them to cluster
2 with another latency of the same pattern. Scenarios with wrong clocks have small latencies, so that only the clocks matter.

| wrong | error |
|---|---|
| producers' clocks | a share of the messages has timestamps that are `CLOCK_OFF_MS` ahead or behind |
| one message | its timestamp is 30 days ahead or behind |
| a broker's clock | cluster 1's clock is always 2 hours ahead; or it jumps ahead for an hour, and back |

`scale` changes the number of messages but no durations, so that a small run shows the same effects.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from studies.case import one_of
from studies.workload import (
    DAY_MS,
    EPOCH_MS,
    HOUR_MS,
    LARGE_LATENCY,
    MINUTE_MS,
    MIXED_LATENCY,
    SMALL_LATENCY,
    Latency,
    Messages,
    Workload,
    WrongClock,
    generate,
    mirrored,
)

SEED = 32
MADE_DAYS = 5
RETENTION_MS = 2 * DAY_MS
SEGMENT_MS = 3 * HOUR_MS
CHECK_MS = 30 * MINUTE_MS
"""The interval between two retention runs (log.retention.check.interval.ms)."""
AFTER_MAX_MS = HOUR_MS
"""The timestamp check (message.timestamp.after.max.ms), if it is on."""
END_MS = EPOCH_MS + 11 * DAY_MS
"""The end of a run. With correct clocks everything is deleted by then, so anything left is kept by a wrong timestamp."""

INTERVAL_MS = 4 * MINUTE_MS
"""The mean time between two messages at scale 1."""
VALUE_BYTES = 100

CLOCK_OFF_MS = 12 * HOUR_MS
CLOCK_OFF_SHARE = 0.1
FAR_OFF_MS = 30 * DAY_MS
SKEW_MS = 2 * HOUR_MS


@dataclass(frozen=True)
class ClockError:
    """A broker's clock that is ahead by `offset_ms` between the true times `first_ms` and `last_ms` (exclusive)."""

    offset_ms: int
    first_ms: int = 0
    last_ms: int = 2**62

    def at(self, truth_ms: int) -> int:
        """Return the clock's error at a true time (ms)."""
        return self.offset_ms if self.first_ms <= truth_ms < self.last_ms else 0


RIGHT = ClockError(0)
JUMP_FIRST_MS = EPOCH_MS + 3 * DAY_MS
JUMP_LAST_MS = JUMP_FIRST_MS + HOUR_MS


@dataclass(frozen=True)
class Scenario:
    """One row of the comparison. `pattern` is the scenario's column in KIP-32's tables."""

    name: str
    pattern: str
    latency: Latency = SMALL_LATENCY
    wrong_clock: WrongClock | None = None
    far_off_ms: int = 0
    """The error of one message's timestamp, in the middle of the messages."""
    broker: ClockError = RIGHT
    """The clock of cluster 1; cluster 2's clock is correct."""
    interval_ms: int = INTERVAL_MS
    note: str = ""

    def workload(self, scale: float) -> Workload:
        """Return the scenario's workload."""
        interval_ms = self.interval_ms / (scale if self.interval_ms == INTERVAL_MS else 1)
        records = max(8, round(MADE_DAYS * DAY_MS / interval_ms))
        return Workload(self.name, SEED, records, interval_ms, self.latency, self.wrong_clock, VALUE_BYTES)

    def messages(self, scale: float) -> tuple[Messages, Messages]:
        """Return the messages in order of arrival at cluster 1, and at cluster 2."""
        first = generate(self.workload(scale))
        if self.far_off_ms:
            create = first.create_ms.copy()
            create[np.flatnonzero(first.numbers == len(first) // 2)] += self.far_off_ms
            first = dataclasses.replace(first, create_ms=create)
        return first, mirrored(first, self.latency, SEED + 1)

    def describe(self, scale: float) -> str:
        """Return all parameters in one line, for the report."""
        one = f"; message {self.workload(scale).records // 2} says {self.far_off_ms:+,} ms" if self.far_off_ms else ""
        broker = self.broker
        where = "" if broker.last_ms > END_MS else f" from {broker.first_ms - EPOCH_MS:,} to {broker.last_ms - EPOCH_MS:,} ms"
        clock = f"; the clock of cluster 1 is {broker.offset_ms:,} ms ahead{where}" if broker.offset_ms else ""
        return self.workload(scale).describe() + one + clock


PATTERN_1 = "pattern 1"
PATTERN_2 = "pattern 2"
PATTERN_3 = "pattern 3"
ROBUSTNESS = "robustness"
BROKER = "broker's clock"
PATTERNS = (PATTERN_1, PATTERN_2, PATTERN_3, ROBUSTNESS)

SCENARIOS = (
    Scenario("small latency", PATTERN_1),
    Scenario("large latency", PATTERN_2, LARGE_LATENCY),
    Scenario("mixed latency", PATTERN_3, MIXED_LATENCY),
    Scenario("producers ahead", ROBUSTNESS, wrong_clock=WrongClock(CLOCK_OFF_SHARE, CLOCK_OFF_MS)),
    Scenario("producers behind", ROBUSTNESS, wrong_clock=WrongClock(CLOCK_OFF_SHARE, -CLOCK_OFF_MS)),
    Scenario("one from the future", ROBUSTNESS, far_off_ms=FAR_OFF_MS),
    Scenario("one from the past", ROBUSTNESS, far_off_ms=-FAR_OFF_MS),
    Scenario("broker ahead", BROKER, broker=ClockError(SKEW_MS)),
    Scenario("broker jumps 12 hours", BROKER, broker=ClockError(12 * HOUR_MS, JUMP_FIRST_MS, JUMP_LAST_MS)),
    Scenario("broker jumps 30 days", BROKER, broker=ClockError(30 * DAY_MS, JUMP_FIRST_MS, JUMP_LAST_MS)),
)
QUIET = Scenario("quiet topic", PATTERN_1, interval_ms=HOUR_MS)
"""One message per hour: the kind of topic that rolling by time is for."""


def scenario(name: str) -> Scenario:
    """Return the scenario of that name. Raise InvalidArgumentError if there is none."""
    by_name = {one.name: one for one in (*SCENARIOS, QUIET)}
    return by_name[one_of(tuple(by_name), name, "scenario")]


def settings() -> tuple[str, ...]:
    """Return the settings that all cases share, in words."""
    return (
        f"retention.ms = {RETENTION_MS:,} (2 days), segment.ms = {SEGMENT_MS:,} (3 hours), segment.bytes never reached",
        f"retention is looked at every {CHECK_MS:,} ms (30 minutes)",
        f"messages are made for {MADE_DAYS} days, each is a batch of its own",
        f"a run ends after {(END_MS - EPOCH_MS) // DAY_MS} days; what is still there then counts as if it went then",
        "age is true age: since the message was made, by a clock that is right",
    )
