"""Use case 4: a consumer's lag in time, and when it will reach the log's end.

A consumer starts when half of the messages have arrived, at a quarter of the log, and reads four times as fast as messages
arrive. Every second, until it has caught up, it estimates its lag from the stored timestamps. (If a run takes less than ten
minutes, the times are shorter in proportion.)

| estimate | |
|---|---|
| now - last read | the consumer's clock, which is correct, minus the timestamp of the last message read |
| log end - last read | the timestamp of the log's last message minus that of the last message read |

The true lag is the time since the arrival of the last message read. The time to the end follows from the consumer's progress over
the last minute, in seconds of log per second: lag / (progress - 1). The true time is when the simulated consumer reaches the end.
For comparison, it is also estimated from offsets: messages left / (messages read - messages appended) of the last minute.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.use_cases.clusters import LATENCY, TYPES, cluster, skew_of, stored_times
from studies.workload import MINUTE_MS, SECOND_MS, Int64s, Workload, generate

LAG = "lag"
INTERVAL_MS = SECOND_MS
SPEED = 4
WINDOW_MS = MINUTE_MS
"""The length of "the last minute"."""
ESTIMATES_A_WINDOW = 60
NEAR_END_WINDOWS = 2
"""Estimates of the time to the end count only while more than this is left: close to the end they are noise."""

NOW = "now - last read"
LOG_END = "log end - last read"
OFFSETS = "offsets"


def workload(case: Case) -> Workload:
    """Return the messages of the consumer's topic."""
    wrong = skew_of(case.name).wrong_clock
    return Workload(
        f"{case.part}, {case.name}", int(case.parameters["seed"]), int(case.parameters["records"]), INTERVAL_MS, LATENCY, wrong
    )


class Consumer:
    """A consumer that reads at a constant rate. Its position is the number of messages read."""

    def __init__(self, arrivals: Int64s) -> None:
        self._arrivals = arrivals
        self.begin_ms = int(arrivals[len(arrivals) // 2])
        self._first = len(arrivals) // 4
        self._per_ms = SPEED * len(arrivals) / float(arrivals[-1] - arrivals[0])
        self.end_ms = next(
            time_ms for time_ms in range(self.begin_ms, int(arrivals[-1]) + 1, 100) if self._has_caught_up(time_ms)
        )

        self.window_ms = min(WINDOW_MS, max(2, (self.end_ms - self.begin_ms) // 10))

    def position(self, time_ms: int) -> int:
        """Return how many messages from the log's start the consumer has read at a time, at least one."""
        return max(1, min(self.log_end(time_ms), self._first + int((time_ms - self.begin_ms) * self._per_ms)))

    def log_end(self, time_ms: int) -> int:
        """Return how many messages have arrived at a time."""
        return int(np.searchsorted(self._arrivals, time_ms, side="right"))

    def _has_caught_up(self, time_ms: int) -> bool:
        return self.position(time_ms) == self.log_end(time_ms)


def measure(case: Case, work_dir: Path) -> list[Measurement]:
    """Run a consumer until it has caught up, and compare its estimates with the truth."""
    found: list[Measurement] = []
    messages = generate(workload(case))
    consumer = Consumer(messages.arrival_ms)
    window_ms = consumer.window_ms
    moments = range(consumer.begin_ms + window_ms, consumer.end_ms, max(1, window_ms // ESTIMATES_A_WINDOW))

    def note(subject: str, metric: str, value: float, unit: str = "ms") -> None:
        found.append(Measurement(case.part, case.name, subject, metric, value, unit))

    for timestamp_type in TYPES:
        folder = work_dir / timestamp_type
        with cluster(folder, timestamp_type, skew_of(case.name).broker_ms) as one:
            one.append(messages)
            times, _ = stored_times(folder)
        estimates: dict[str, Callable[[int], float]] = {
            NOW: lambda at, times=times: float(at - times[consumer.position(at) - 1]),  # type: ignore[misc]
            LOG_END: lambda at, times=times: float(times[consumer.log_end(at) - 1] - times[consumer.position(at) - 1]),  # type: ignore[misc]
        }
        for name, estimate in estimates.items():
            errors = [estimate(at) - float(at - messages.arrival_ms[consumer.position(at) - 1]) for at in moments]
            note(f"{timestamp_type}: {name}", "lag, mean error", float(np.mean(np.abs(errors))))
            note(f"{timestamp_type}: {name}", "lag, largest error", float(np.max(np.abs(errors))))

        def by_time(at: int, times: Int64s = times, lag_of: Callable[[int], float] = estimates[LOG_END]) -> float | None:
            progress = float(times[consumer.position(at) - 1] - times[consumer.position(at - window_ms) - 1]) / window_ms
            return lag_of(at) / (progress - 1) if progress > 1 else None

        _note_ends(note, timestamp_type, consumer, moments, by_time)

    def left(at: int) -> int:
        return consumer.log_end(at) - consumer.position(at)

    def by_offset(at: int) -> float | None:
        gained = left(at - window_ms) - left(at)
        return left(at) * window_ms / gained if gained > 0 else None

    _note_ends(note, OFFSETS, consumer, moments, by_offset)
    note("consumer", "estimates", len(moments), "estimates")
    note("consumer", "lag at first", float(consumer.begin_ms - messages.arrival_ms[consumer.position(consumer.begin_ms) - 1]))
    note("consumer", "time to the end at first", float(consumer.end_ms - consumer.begin_ms))
    return found


def _note_ends(
    note: Callable[..., None], subject: str, consumer: Consumer, moments: range, estimate: Callable[[int], float | None]
) -> None:
    """Note the relative error of the estimated times to the end."""
    errors: list[float] = []
    without = 0
    for at in moments:
        truth = consumer.end_ms - at
        if truth < NEAR_END_WINDOWS * consumer.window_ms:
            break
        estimated = estimate(at)
        if estimated is None:
            without += 1
        else:
            errors.append(abs(estimated - truth) / truth)
    note(subject, "time to the end, without estimate", without, "estimates")
    if errors:
        note(subject, "time to the end, median error", float(np.median(errors)), "of the time left")
        note(subject, "time to the end, largest error", float(np.max(errors)), "of the time left")
