"""Brokers as pytest fixtures; pytest finds them wherever Tidelog is installed.

| fixture | is |
|---|---|
| `tidelog_broker` | a running broker, its data in the test's temporary folder |
| `tidelog_broker_properties` | its properties; redefine this fixture in a module or class: `{"log.retention.ms": 1000}` |
| `tidelog_clock` | a clock that stands still at the machine's time, for `make_tidelog_broker(clock=tidelog_clock)` |
| `make_tidelog_broker` | starts more brokers, with the arguments of `tidelog.Broker`; all are stopped at the test's end |

Until a test requests one of these fixtures, only pytest is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.clock import ManualClock
    from tidelog.config import PropertyValue


@pytest.fixture
def tidelog_broker_properties() -> Mapping[str, PropertyValue]:
    """The properties of `tidelog_broker`, by Kafka's names."""
    return {}


@pytest.fixture
def tidelog_broker(make_tidelog_broker: Callable[..., Broker], tidelog_broker_properties: Mapping[str, PropertyValue]) -> Broker:
    """A running broker; clients connect to `tidelog_broker.bootstrap_servers`."""
    return make_tidelog_broker(**tidelog_broker_properties)


@pytest.fixture
def make_tidelog_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """A function that starts a broker and returns it."""
    from tidelog.broker.broker import Broker

    with ExitStack() as stack:
        made: list[Broker] = []

        def make(data_dir: str | Path | None = None, **arguments: Any) -> Broker:
            folder = tmp_path / f"tidelog-{len(made)}" if data_dir is None else data_dir
            broker = Broker(folder, **arguments)
            made.append(broker)
            return stack.enter_context(broker)

        yield make


@pytest.fixture
def tidelog_clock() -> ManualClock:
    """A clock for brokers that moves only when the test advances it."""
    from tidelog.clock import ManualClock, SystemClock

    return ManualClock(SystemClock().now_ms())
