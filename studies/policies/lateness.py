"""Compares actual with configured retention: too early, too long, or on one cluster only. Pure functions; times are ms.

Age is the true age: the time from a message's creation to its deletion. So

    too early   = retention.ms - age, if that is positive
    too long    = age - retention.ms - allowance, if that is positive

The allowance is the delay that any rule for whole segments may need: segment.ms plus one interval between checks. A message that
exists at the end counts as deleted then. Its figures are lower bounds, and `left` is the number of such messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from studies.policies.scenarios import CHECK_MS, END_MS, RETENTION_MS, SEGMENT_MS
from studies.workload import HOUR_MS, Int64s

UNREAD_MS = HOUR_MS
"""A message deleted sooner than this after its arrival may not have been read by any consumer."""


class Lateness(NamedTuple):
    """The errors over all messages of one cluster."""

    messages: int
    early: int
    """The number of messages deleted too early."""
    early_mean_ms: float
    """The mean over those messages."""
    early_max_ms: int
    long: int
    """The number of messages kept too long, beyond the allowance."""
    long_mean_ms: float
    """The mean over those messages."""
    long_max_ms: int
    left: int
    """The number of messages left at the end."""
    unread: int
    """The number of messages deleted within `UNREAD_MS` of their arrival."""
    off_ms: float
    """The mean error per message, too early plus too long: criterion 1."""
    age_off_ms: float
    """The mean difference of the age at deletion from retention.ms, in either direction, without allowance: criterion 2."""
    stay_off_ms: float
    """The mean difference of the time on this cluster from retention.ms, in either direction: criterion 3."""


def lateness(
    made_ms: Int64s,
    arrival_ms: Int64s,
    gone_ms: Int64s,
    *,
    retention_ms: int = RETENTION_MS,
    allowance_ms: int = SEGMENT_MS + CHECK_MS,
    end_ms: int = END_MS,
) -> Lateness:
    """Return the errors of deletion. If a message's `gone_ms` is after `end_ms`, the message is left at the end."""
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
    """Messages that one cluster has deleted while the other still has them."""

    messages: int
    """The number of messages for which this was true at some time."""
    mean_ms: float
    """The mean duration over those messages."""
    longest_ms: int
    most: int
    """The most messages at one moment."""
    share_ms: float
    """The mean duration over all messages: the criterion."""


def apart(arrival_1: Int64s, gone_1: Int64s, arrival_2: Int64s, gone_2: Int64s, end_ms: int = END_MS) -> tuple[Int64s, Int64s]:
    """Return the interval in which each message was deleted on one cluster only, by message index.

    The interval begins only after the message has arrived at both.
    """
    first = np.maximum(np.minimum(gone_1, gone_2), np.maximum(arrival_1, arrival_2))
    last = np.minimum(np.maximum(gone_1, gone_2), end_ms)
    return first, np.maximum(first, last)


def divergence(first_ms: Int64s, last_ms: Int64s) -> Divergence:
    """Return the statistics of `apart`'s intervals."""
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
    """Return the number of open intervals after each time at which it changes. Empty intervals do not count."""
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
