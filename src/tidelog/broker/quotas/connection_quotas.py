"""Limits the rate of new connections for the broker, each listener and each address. Used by `server.broker_server`.

| limit | if exceeded |
|---|---|
| `max.connection.creation.rate` | the listener accepts no connections for at most one window; the new connection waits, too |
| `listener.name.<name>.max.connection.creation.rate` | the same, for this listener alone |
| `connection_creation_rate`, a quota of one or all addresses (KIP-612) | the new connection is closed after a delay, unread |

If there are several listeners, the inter-broker listener is exempt from the broker's rate: see `connection_limits`. Rates are
computed as for quotas (`quota_rate`), over ``quota.window.num`` windows.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from tidelog.broker.loop.timers import Blocking
from tidelog.broker.quotas.quota_limits import limits_of_addresses
from tidelog.broker.quotas.quota_rate import QuotaRate
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.listener_limits import UNLIMITED
from tidelog.metadata.image import QuotaKey

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

MAX_ADDRESSES: Final = 20_000
"""The most addresses whose rates are kept. The address whose last connection is oldest is dropped first."""


class ConnectionQuotas:
    """Counts new connections. Use only on the event loop's thread."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int], blocking: Blocking) -> None:
        self._now_ms = now_ms
        self._blocking = blocking
        windows, self._window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000
        self._make = partial(QuotaRate, windows, self._window_ms)
        self._rates: dict[str | None, QuotaRate] = {}
        """Rates by listener name; the key None has the broker's rate."""
        self._addresses: OrderedDict[str, QuotaRate] = OrderedDict()
        self._limits: dict[str | None, float] = {}

    def take_over(self, quotas: Mapping[QuotaKey, float]) -> None:
        """Apply the quotas for addresses. Host names are resolved on another thread."""
        self._limits = limits = {}
        for name, value in limits_of_addresses(CONNECTION_CREATION_RATE, quotas).items():
            address = None if name is None else as_address(name)
            if name is None or address is not None:
                limits[address] = value
            else:
                self._blocking.run(partial(_addresses_of, name), partial(self._found, limits, value))

    def _found(self, limits: dict[str | None, float], value: float, found: Iterable[str] | BaseException) -> None:
        if not isinstance(found, BaseException):
            for address in found:
                limits.setdefault(address, value)

    def wait_ms(self, limits: Iterable[tuple[str | None, int]]) -> int:
        """Count a connection for each pair in `limits`: a listener's name (None for the broker) and its limit. Return for how
        many ms the connection must wait.
        """
        wait = 0
        for name, limit in limits:
            if limit < UNLIMITED:
                now_ms = self._now_ms()
                rate = self._rates.get(name)
                if rate is None:
                    rate = self._rates[name] = self._make()
                rate.record(1, now_ms)
                wait = max(wait, min(rate.throttle_ms(limit, now_ms), self._window_ms))
        return wait

    def wait_of_address_ms(self, host: str) -> int:
        """Count a connection from an address. Return after how many ms to close the connection, 0 if it may stay open."""
        limits = self._limits
        if not limits:
            return 0
        limit = limits.get(host, limits.get(None))
        if limit is None:
            return 0
        now_ms = self._now_ms()
        addresses = self._addresses
        rate = addresses.get(host)
        if rate is None:
            while addresses:
                oldest = next(iter(addresses))
                if len(addresses) < MAX_ADDRESSES and not addresses[oldest].is_idle(now_ms):
                    break
                del addresses[oldest]
            rate = addresses[host] = self._make()
        addresses.move_to_end(host)
        rate.record(1, now_ms)
        wait = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if wait:
            rate.record(-1, now_ms)
        return wait


def as_address(text: str) -> str | None:
    """Return an address in the form that sockets use; None if it is not an address."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str(getattr(found, "ipv4_mapped", None) or found)


def _addresses_of(name: str) -> list[str]:
    return [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
