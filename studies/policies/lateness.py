"""Too early, too long, on one cluster only: what retention did, beside what it was told to do. Pure; times are ms.

Age is true age: from when a message was made to when it was deleted. retention.ms is what was asked for, so

    too early   = retention.ms - age, where that is positive
    too long    = age - retention.ms - allowance, where that is positive

The allowance is what any rule that deletes whole segments may need: segment.ms and one interval between checks. A message that is
still there at the end counts as if it went then: its figures are lower bounds, and `left` says how many there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from studies.policies.scenarios import CHECK_MS, END_MS, RETENTION_MS, SEGMENT_MS
from studies.workload import HOUR_MS, Int64s

UNREAD_MS = HOUR_MS
"""A message that is deleted sooner after its arrival may not have been read by anybody."""


class Lateness(NamedTuple):
    """Of all messages of one cluster."""

    messages: int
    early: int
    """Deleted too early."""
    early_mean_ms: float
    """Of those."""
    early_max_ms: int
    long: int
    """Kept too long, beyond the allowance."""
    long_mean_ms: float
    """Of those."""
    long_max_ms: int
    left: int
    """Still there at the end."""
    unread: int
    """Deleted within `UNREAD_MS` of their arrival."""
    off_ms: float
    """Too early and too long, a message, on average: criterion 1."""
    age_off_ms: float
    """How far age at deletion is from retention.ms, either way and without allowance, on average: criterion 2."""
    stay_off_ms: float
    """How far the time on this cluster is from retention.ms, either way, on average: criterion 3."""


def lateness(
    made_ms: Int64s,
    arrival_ms: Int64s,
    gone_ms: Int64s,
    *,
    retention_ms: int = RETENTION_MS,
    allowance_ms: int = SEGMENT_MS + CHECK_MS,
    end_ms: int = END_MS,
) -> Lateness:
    """Return how far deletion was off. `gone_ms` beyond `end_ms` means that a message is still there."""
    until = np.minimum(gone_ms, end_ms)
    age, stay = until - made_ms, until - arrival_ms
    left = gone_ms > end_ms
    early = np.where(left, 0, np.maximum(0, retention_ms - age))
    long = np.maximum(0, age - retention_ms - allowance_ms)
    return Lateness(
        len(made_ms),
        int((early > 0).sum()),
        _mean_of_positive(early),
        int(early.max()),
        int((long > 0).sum()),
        _mean_of_positive(long),
        int(long.max()),
        int(left.sum()),
        int((~left & (stay < UNREAD_MS)).sum()),
        float((early + long).mean()),
        float(np.abs(age - retention_ms).mean()),
        float(np.abs(stay - retention_ms).mean()),
    )


def _mean_of_positive(values: Int64s) -> float:
    some = values[values > 0]
    return float(some.mean()) if len(some) else 0.0


class Divergence(NamedTuple):
    """Messages that one cluster has deleted and the other still has, at the same instant."""

    messages: int
    """For which that was so at some time."""
    mean_ms: float
    """For how long, of those."""
    longest_ms: int
    most: int
    """At one instant."""
    share_ms: float
    """For how long, of all messages: the criterion."""


def apart(arrival_1: Int64s, gone_1: Int64s, arrival_2: Int64s, gone_2: Int64s, end_ms: int = END_MS) -> tuple[Int64s, Int64s]:
    """Return from when to when each message was deleted on one cluster and not on the other; same message, same index.

    It counts from when it has arrived at both.
    """
    first = np.maximum(np.minimum(gone_1, gone_2), np.maximum(arrival_1, arrival_2))
    last = np.minimum(np.maximum(gone_1, gone_2), end_ms)
    return first, np.maximum(first, last)


def divergence(first_ms: Int64s, last_ms: Int64s) -> Divergence:
    """Return what is counted of `apart`'s intervals."""
    lasted = last_ms - first_ms
    some = lasted[lasted > 0]
    counts = [count for _, count in steps(first_ms, last_ms)]
    return Divergence(
        len(some),
        float(some.mean()) if len(some) else 0.0,
        int(lasted.max(initial=0)),
        max(counts, default=0),
        float(lasted.mean()) if len(lasted) else 0.0,
    )


def steps(first_ms: Int64s, last_ms: Int64s) -> list[tuple[int, int]]:
    """Return how many intervals are under way, from each time on at which that changes; empty intervals are none."""
    real = last_ms > first_ms
    times = np.concatenate([first_ms[real], last_ms[real]])
    changes = np.concatenate([np.ones(real.sum(), np.int64), -np.ones(real.sum(), np.int64)])
    found: list[tuple[int, int]] = []
    count = 0
    for at in np.unique(times).tolist():
        change = int(changes[times == at].sum())
        if change:
            count += change
            found.append((at, count))
    return found
