"""For tests of programs that use Kafka: a broker inside the test's process, and a clock that moves when a test moves it.

| | |
|---|---|
| `Broker` | a broker on a free port, see `tidelog.broker.broker`; imported when it is first used |
| `ManualClock` | a clock for the broker, to let time pass in a test: `advance` runs the work that has become due |
| `plugin` | the broker and the clock as pytest fixtures |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.clock import ManualClock as ManualClock

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker as Broker

__all__ = ["Broker", "ManualClock"]


def __getattr__(name: str) -> Any:
    if name != "Broker":
        raise AttributeError(f"module 'tidelog.testing' has no attribute {name!r}")
    from tidelog.broker.broker import Broker

    return Broker
