"""Counts the usage of clients against their quotas, and throttles them. One per broker; without quotas it does nothing.

| quota | counts | if exceeded, the client is |
|---|---|---|
| `producer_byte_rate` | bytes of Produce requests | answered, then muted until the rate is below the quota |
| `consumer_byte_rate` | bytes of Fetch responses | answered without records, then muted |
| `request_percentage` | time on the loop, as a share of one processor | answered, then muted, for one window at most |
| `controller_mutation_rate` | partitions created and deleted | refused in versions that know code 89, muted in others |
| `connection_creation_rate` | connections of an address: see `connection_quotas` | |

Nothing is read from a muted connection (`AnswerWriter.mute`). Its response is sent at once, with `throttle_time_ms`, so that
clients wait by themselves (KIP-219). Other connections are not affected. Followers' fetches and transaction markers are exempt.

Clients can invent any number of client ids. Therefore idle counters are dropped (`SWEEP_MS`), and when there are `MAX_COUNTERS`,
the least recently used one is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from time import perf_counter_ns
from typing import Any, Final, Generic, Protocol, TypeVar

from tidelog.broker.quotas.quota_limits import Limit, QuotaLimits
from tidelog.broker.quotas.quota_rate import QuotaRate, TokenBucket
from tidelog.broker.requests.api_error import ApiError
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.metadata.image import QuotaKey
from tidelog.security.principal import Principal
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest

T = TypeVar("T")

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

MAX_COUNTERS: Final = 20_000
"""The most counters for each kind of quota. A counter takes at most 3 KiB, so each kind takes at most 60 MiB."""

LONGEST_NAME: Final = 100
"""The longest user name or client id, in characters, that is itself used as a key. Longer ones (up to 32,767) are replaced by a
digest.
"""

SWEEP_MS: Final = 10_000

_PERCENT_A_NS: Final = 100 / 1e9


_EXEMPT: Final = frozenset({FetchRequest.API_KEY, WriteTxnMarkersRequest.API_KEY})
"""APIs whose time `throttle` does not count: `fetch.fetch` counts the time of fetches, and brokers' requests have no quota."""


class Counted(Protocol):
    """The fields and methods of a request that quotas use."""

    principal: Principal
    client_id: str | None
    correlation_id: int
    request_bytes: int
    started_ns: int
    busy_ns: int

    @property
    def is_waiting(self) -> bool:
        """Whether the response is sent later."""

    def mute(self, throttle_ms: int) -> None:
        """Stop reading from the client's connection for `throttle_ms`."""


class _Counters(Generic[T]):
    """The counters for one kind of quota, the least recently used first."""

    def __init__(self, make: Callable[[], T], is_new: Callable[[T, float, int], bool]) -> None:
        self._make = make
        self._is_new = is_new
        self._found: OrderedDict[tuple[str | bytes, str | bytes], tuple[T, float]] = OrderedDict()
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._found)

    def find(self, limit: Limit, now_ms: int) -> T:
        found = self._found
        if now_ms - self._swept_ms >= SWEEP_MS or len(found) >= MAX_COUNTERS:
            self._sweep(now_ms)
        key = _short(limit.user), _short(limit.client_id)
        known = found.get(key)
        counter = self._make() if known is None else known[0]
        found[key] = counter, limit.value
        found.move_to_end(key)
        return counter

    def _sweep(self, now_ms: int) -> None:
        """Drop counters, the least recently used first, until one is not idle and there are fewer than `MAX_COUNTERS`."""
        self._swept_ms = now_ms
        found = self._found
        while found:
            counter, limit = next(iter(found.values()))
            if not self._is_new(counter, limit, now_ms) and len(found) < MAX_COUNTERS:
                break
            found.popitem(last=False)


def _short(name: str) -> str | bytes:
    return name if len(name) <= LONGEST_NAME else blake2b(name.encode("utf-8", "surrogatepass"), digest_size=32).digest()


class ClientQuotas:
    """The quotas of users and client ids, and their usage. Use only on the event loop's thread."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        windows, self._window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        of_controllers = config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000

        def rates() -> _Counters[QuotaRate]:
            return _Counters(lambda: QuotaRate(windows, self._window_ms), lambda one, limit, now_ms: one.is_idle(now_ms))

        self._windows_s = (windows - 1) * self._window_ms / 1000
        self._produced, self._fetched, self._spent = rates(), rates(), rates()
        self._mutated = _Counters(lambda: TokenBucket(*of_controllers), TokenBucket.is_full)
        self.is_active = False
        """Whether any quota is set. If none is, requests are not counted."""
        self.counts_time = False
        """Whether any `request_percentage` quota is set, so that time must be measured."""
        self._on_change: list[Callable[[Mapping[QuotaKey, float]], None]] = []
        self.take_over({})

    def on_change(self, call: Callable[[Mapping[QuotaKey, float]], None]) -> None:
        """Register a function to be called whenever the quotas change."""
        self._on_change.append(call)

    def take_over(self, quotas: Mapping[QuotaKey, float]) -> None:
        """Replace all quotas by those in the cluster's metadata."""
        self._produce_limits = QuotaLimits(PRODUCER_BYTE_RATE, quotas)
        self._fetch_limits = QuotaLimits(CONSUMER_BYTE_RATE, quotas)
        self._time_limits = QuotaLimits(REQUEST_PERCENTAGE, quotas)
        self._mutation_limits = QuotaLimits(CONTROLLER_MUTATION_RATE, quotas)
        self.counts_time = bool(self._time_limits)
        self.is_active = bool(self._produce_limits or self._fetch_limits or self._time_limits or self._mutation_limits)
        for call in self._on_change:
            call(quotas)

    def __len__(self) -> int:
        return len(self._produced) + len(self._fetched) + len(self._spent) + len(self._mutated)

    def throttle(self, who: Counted, response: Any | None) -> None:
        """Count a request whose response is about to be written, and mute its connection if a quota is exceeded. The response is
        None if the request gets none, which happens only with Produce.
        """
        key = ProduceRequest.API_KEY if response is None else response.API_KEY
        if key == ProduceRequest.API_KEY:
            throttle_ms = self.produced(who, who.request_bytes)
        else:  # Set by the handler.
            throttle_ms = getattr(response, "throttle_time_ms", 0)
        if self.counts_time and response is not None and key not in _EXEMPT:
            busy_ns = who.busy_ns if who.is_waiting else perf_counter_ns() - who.started_ns
            throttle_ms = max(throttle_ms, self.spent(who, busy_ns))
        if throttle_ms:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms  # type: ignore[union-attr]
            who.mute(throttle_ms)

    def produced(self, who: Counted, size_bytes: int) -> int:
        """Count a Produce request. Return for how many milliseconds its connection must be muted."""
        limit = self._produce_limits.find(who.principal.name, who.client_id or "")
        return 0 if limit is None else self._count(self._produced, limit, size_bytes)

    def fetched(self, who: Counted, size_bytes: int) -> int:
        """Count a Fetch response. Return for how many milliseconds its connection must be muted; unless that is 0, the response
        must be sent without records.
        """
        limit = self._fetch_limits.find(who.principal.name, who.client_id or "")
        if limit is None:
            return 0
        throttle_ms = self._count(self._fetched, limit, size_bytes)
        if throttle_ms:
            self.not_fetched(who, size_bytes)
        return throttle_ms

    def not_fetched(self, who: Counted, size_bytes: int) -> None:
        """Undo `fetched`, because the response is sent without the records that were counted."""
        limit = self._fetch_limits.find(who.principal.name, who.client_id or "")
        if limit is not None:
            now_ms = self._now_ms()
            self._fetched.find(limit, now_ms).record(-size_bytes, now_ms)

    def most_fetched(self, who: Counted) -> float:
        """Return the most bytes that one fetch can return without being throttled, if the client fetched nothing recently."""
        limit = self._fetch_limits.find(who.principal.name, who.client_id or "")
        return float("inf") if limit is None else limit.value * self._windows_s

    def spent(self, who: Counted, time_ns: int) -> int:
        """Count a request's time on the loop. Return for how many milliseconds its connection must be muted."""
        limit = self._time_limits.find(who.principal.name, who.client_id or "")
        if limit is None:
            return 0
        return min(self._count(self._spent, limit, time_ns * _PERCENT_A_NS), self._window_ms)

    def mutations(self, who: Counted, *, is_strict: bool) -> Mutations:
        """Return the counter for the partitions that a request creates or deletes. `is_strict` is whether the request's
        version knows THROTTLING_QUOTA_EXCEEDED.
        """
        limit = self._mutation_limits.find(who.principal.name, who.client_id or "")
        if limit is None:
            return _UNLIMITED
        return Mutations(limit.value, self._mutated.find(limit, self._now_ms()), self._now_ms, is_strict=is_strict)

    def _count(self, counters: _Counters[QuotaRate], limit: Limit, value: float) -> int:
        now_ms = self._now_ms()
        rate = counters.find(limit, now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(limit.value, now_ms)


class Mutations:
    """Counts the partitions that one request creates or deletes against `controller_mutation_rate` (KIP-599)."""

    def __init__(self, limit: float, bucket: TokenBucket | None, now_ms: Callable[[], int], *, is_strict: bool) -> None:
        self._limit = limit
        self._bucket = bucket
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0
        """How long the client must wait, in ms."""

    def record(self, partitions: int) -> None:
        """Count partitions before they are created or deleted. Raises ApiError if the rate is exceeded."""
        bucket = self._bucket
        if bucket is None:
            return
        now_ms = self._now_ms()
        if self._is_strict:
            wait_ms = bucket.throttle_ms(self._limit, now_ms)
            if wait_ms:
                self.throttle_ms = max(self.throttle_ms, wait_ms)
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.record(partitions, self._limit, now_ms)
        if not self._is_strict:
            self.throttle_ms = max(self.throttle_ms, bucket.throttle_ms(self._limit, now_ms))


_UNLIMITED = Mutations(0, None, lambda: 0, is_strict=False)
