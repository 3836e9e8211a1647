"""Reports from `tidelog serve` to systemd with the protocol of sd_notify: datagrams to the socket that `NOTIFY_SOCKET` names.

| | |
|---|---|
| `READY=1` | clients are served; systemd now starts the services that need the broker |
| `STOPPING=1` | the broker is shutting down |
| `WATCHDOG=1` | the event loop is running; sent twice in each `WATCHDOG_USEC`, if the unit has a `WatchdogSec` |

Without a `NOTIFY_SOCKET`, nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress


def notify_ready(status: str, loop: asyncio.AbstractEventLoop) -> None:
    """Report that clients are served. From now on, also report that the event loop is running."""
    _send(f"READY=1\nSTATUS={status}")
    period = os.environ.get("WATCHDOG_USEC", "")
    if period.isdecimal() and os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
        _say_that_it_runs(loop, int(period) / 2e6)


def notify_stopping() -> None:
    """Report that the broker is shutting down."""
    _send("STOPPING=1\nSTATUS=shutting down")


def _say_that_it_runs(loop: asyncio.AbstractEventLoop, every_s: float) -> None:
    _send("WATCHDOG=1")
    loop.call_later(every_s, _say_that_it_runs, loop, every_s)


def _send(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # The name of an abstract socket begins with a null byte.
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        channel.sendto(state.encode(), address)
