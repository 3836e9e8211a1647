"""Rates over recent windows, and token buckets: Kafka's quota arithmetic (Rate, TokenBucket, QuotaUtils).

A rate is the sum of the last ``quota.window.num`` windows, divided by the time since the oldest window began. Windows without a
sample (at the start or after a pause) count as empty, so after a pause a client may exceed the rate for a while.

`now_ms` is the time of a monotonic clock, in ms. An idle rate or a full bucket behaves like a new one, so it may be dropped.
"""

from __future__ import annotations

from math import floor

from tidelog.config import INT32_MAX


class QuotaRate:
    """A rate over recent windows. A sample has the start of its window, the last time when a value was counted, and the sum of
    the values.

    Samples are in a ring, as in Kafka. An outdated sample is reset at its next use, and its window begins then. After a pause the
    rate therefore covers a longer time.
    """

    __slots__ = ("_counted_ms", "_newest", "_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: list[list[float]] = []
        self._newest = 0
        self._counted_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count a value; a negative value undoes an earlier one."""
        samples = self._samples
        if not samples:
            samples.append([now_ms, now_ms, 0.0])
        newest = samples[self._newest]
        if now_ms - newest[0] >= self._window_ms:
            self._newest = (self._newest + 1) % (self._windows + 1)
            newest = [now_ms, now_ms, 0.0]
            samples[self._newest : self._newest + 1] = [newest]
        newest[1] = self._counted_ms = now_ms
        newest[2] += value

    def rate(self, now_ms: int) -> float:
        """Return the recent rate per second."""
        window_ms = self.window_ms(now_ms)
        return sum(sample[2] for sample in self._samples) / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> float:
        """Return the length of time that the rate covers, in ms."""
        since_ms = oldest_ms = now_ms
        oldest_ms -= self._windows * self._window_ms
        for sample in self._samples:
            if sample[1] <= oldest_ms:
                sample[:] = [now_ms, now_ms, 0.0]
            elif sample[0] < since_ms:
                since_ms = int(sample[0])
        elapsed_ms = now_ms - since_ms
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how many ms to wait until the rate is down to the limit, 0 if the rate is not above the limit."""
        rate = self.rate(now_ms)
        if not rate > limit:
            return 0
        if limit <= 0:
            return INT32_MAX
        return floor((rate - limit) / limit * self.window_ms(now_ms) + 0.5)

    def is_idle(self, now_ms: int) -> bool:
        """Whether all samples are outdated."""
        return now_ms - self._counted_ms >= self._windows * self._window_ms


class TokenBucket:
    """Tokens accumulate at the limit's rate, at most as many as `windows` windows yield. A client that overdraws is throttled
    until the balance is not negative.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._seconds = windows * window_ms / 1000
        self._tokens = float("inf")
        self._updated_ms = 0

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Take `value` tokens; a negative value returns tokens."""
        self._tokens = min(limit * self._seconds, self.tokens(limit, now_ms) - value)

    def tokens(self, limit: float, now_ms: int) -> float:
        """Return the number of tokens; negative if overdrawn."""
        came = limit * max(now_ms - self._updated_ms, 0) / 1000
        self._tokens = min(limit * self._seconds, self._tokens + came)
        self._updated_ms = now_ms
        return self._tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how many ms to wait until the balance is not negative."""
        tokens = self.tokens(limit, now_ms)
        return 0 if tokens >= 0 else floor(-tokens * 1000 / limit + 0.5)

    def is_full(self, limit: float, now_ms: int) -> bool:
        """Whether the bucket has as many tokens as a new one."""
        return self.tokens(limit, now_ms) >= limit * self._seconds
