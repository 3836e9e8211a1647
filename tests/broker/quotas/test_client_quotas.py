"""Whose limit counts, how much it lets through, and that counters of clients that are gone are dropped."""

from __future__ import annotations

import tracemalloc

import pytest

from tidelog.broker.quotas import client_quotas
from tidelog.broker.quotas.client_quotas import LONGEST_NAME, ClientQuotas
from tidelog.broker.quotas.quota_limits import Limit, QuotaLimits
from tidelog.broker.requests.api_error import ApiError
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.metadata.image import QuotaKey
from tidelog.security.principal import USER, Principal


class Client:
    def __init__(self, user: str, client_id: str | None) -> None:
        self.principal = Principal(USER, user)
        self.client_id = client_id


class Time:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def entity(**parts: str | None) -> tuple[tuple[str, str | None], ...]:
    return tuple((name.replace("_", "-"), value) for name, value in parts.items())


def made(quotas: dict[QuotaKey, float]) -> tuple[ClientQuotas, Time]:
    time = Time()
    found = ClientQuotas(BrokerConfig(), time)
    found.take_over(quotas)
    return found, time


ORDER = [
    (entity(user="ann", client_id="app"), ("ann", "app")),
    (entity(user="ann", client_id=None), ("ann", "app")),
    (entity(user="ann"), ("ann", "")),
    (entity(user=None, client_id="app"), ("ann", "app")),
    (entity(user=None, client_id=None), ("ann", "app")),
    (entity(user=None), ("ann", "")),
    (entity(client_id="app"), ("", "app")),
    (entity(client_id=None), ("", "app")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_nearest_limit_counts(first: int) -> None:
    others = {(entity(user="bob"), "x"): 1.0, (entity(ip="10.0.0.1"), "x"): 2.0, (entity(user="ann"), "y"): 3.0}
    limits = QuotaLimits("x", {**others, **{(parts, "x"): 10.0 + at for at, (parts, _) in enumerate(ORDER) if at >= first}})
    assert limits.find("ann", "app") == Limit(10.0 + first, *ORDER[first][1])


def test_without_a_limit_nothing_is_counted() -> None:
    quotas, _ = made({})
    assert not quotas.is_active and not QuotaLimits("x", {})
    quotas, _ = made({(entity(user="bob"), "producer_byte_rate"): 10.0})
    assert quotas.is_active and not quotas.counts_time
    assert quotas.produced(Client("ann", "app"), 10**9) == 0 and len(quotas) == 0


def test_bytes() -> None:
    quotas, time = made(
        {(entity(user="ann"), "producer_byte_rate"): 1000.0, (entity(client_id=None), "consumer_byte_rate"): 500.0}
    )
    ann = Client("ann", "app")
    assert quotas.produced(ann, 10_000) == 0
    assert quotas.produced(Client("ann", "other"), 1_000) == 1_000, "a user's connections share it"
    assert quotas.most_fetched(ann) == 5_000 and quotas.fetched(ann, 5_000) == 0
    assert quotas.fetched(ann, 500) == 1_000
    assert quotas.fetched(ann, 500) == 1_000, "what is not sent does not count"
    assert quotas.fetched(Client("ann", "other"), 5_000) == 0, "each client id has its own"
    time.ms += 11_000
    assert quotas.fetched(ann, 500) == 0
    quotas.take_over({})
    assert not quotas.is_active and quotas.produced(ann, 10**9) == 0


def test_time_waits_no_longer_than_a_window() -> None:
    quotas, _ = made({(entity(user=None), "request_percentage"): 10.0})
    ann = Client("ann", None)
    assert quotas.counts_time and quotas.spent(ann, 1_000_000_000) == 0
    assert quotas.spent(ann, 10_000_000) == 100
    assert quotas.spent(ann, 3_000_000_000) == 1_000


def test_partitions() -> None:
    quotas, time = made({(entity(user="ann"), "controller_mutation_rate"): 2.0})
    ann = Client("ann", None)
    strict = quotas.mutations(ann, is_strict=True)
    strict.record(30)
    assert strict.throttle_ms == 0
    with pytest.raises(ApiError) as refused:
        strict.record(1)
    assert refused.value.code.name == "THROTTLING_QUOTA_EXCEEDED" and strict.throttle_ms == 4_000
    time.ms += 4_000
    quotas.mutations(ann, is_strict=True).record(1)
    lenient = quotas.mutations(ann, is_strict=False)
    lenient.record(1)
    assert lenient.throttle_ms == 1_000
    free = quotas.mutations(Client("bob", None), is_strict=True)
    free.record(10**6)
    assert free.throttle_ms == 0


def test_counters_of_clients_that_are_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas, time = made({(entity(client_id=None), "producer_byte_rate"): 10.0})
    for number in range(500):
        quotas.produced(Client("ann", f"client-{number}"), 1)
    assert len(quotas) == 500
    time.ms += 11_000
    quotas.produced(Client("ann", "last"), 1)
    assert len(quotas) == 1
    monkeypatch.setattr(client_quotas, "MAX_COUNTERS", 100)
    for number in range(500):
        quotas.produced(Client("ann", f"client-{number}"), 1)
    assert len(quotas) == 100


@pytest.mark.parametrize("length", [LONGEST_NAME - 1, LONGEST_NAME, 4_000])
def test_memory_of_a_counter(length: int) -> None:
    """A client names itself, by 32 KB if it likes: with a quota for all, 20,000 such names were gigabytes."""
    quotas, time = made({(entity(user=None, client_id=None), "request_percentage"): 100.0})
    count = 300
    tracemalloc.start()
    try:
        for _ in range(20):
            time.ms += 1000
            for number in range(count):
                name = f"{number:08}" + "\U0001f600" * (length - 8)
                quotas.spent(Client(name, f"{name}."), 1)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(quotas) == count
    assert size < count * 3072, size / count


def test_long_names_have_a_counter_each() -> None:
    quotas, _ = made({(entity(client_id=None), "producer_byte_rate"): 100.0})
    one, other = Client("ann", "x" * 30_000 + "1"), Client("ann", "x" * 30_000 + "2")
    assert quotas.produced(one, 10_000) > 0
    assert quotas.produced(other, 1) == 0
    assert quotas.produced(one, 1) > 0
    assert len(quotas) == 2
