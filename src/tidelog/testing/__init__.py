"""Tools for testing programs that use Kafka: brokers inside the test's process, and a clock that the test advances.

| | |
|---|---|
| `Broker` | a broker on a free port: `tidelog.Broker` |
| `ManualClock` | a clock for the broker: `advance` moves the time forward and runs the work that becomes due |
| `broker_fixture` | makes a pytest fixture: a broker for a function, a class, a module, a package or the session |
| `MakeBroker` | the type of the fixture `make_tidelog_broker` |
| `KafkaContainer` | replaces testcontainers' class of the same name |
| `plugin` | the fixtures, markers and options; pytest loads it if Tidelog is installed |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.clock import ManualClock as ManualClock
from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker as Broker
    from tidelog.testing.kafka_container import KafkaContainer as KafkaContainer
    from tidelog.testing.scoped_brokers import MakeBroker as MakeBroker
    from tidelog.testing.scoped_brokers import broker_fixture as broker_fixture

__all__ = ["Broker", "KafkaContainer", "MakeBroker", "ManualClock", "broker_fixture"]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.broker.broker": ("Broker",),
            "tidelog.testing.scoped_brokers": ("MakeBroker", "broker_fixture"),
            "tidelog.testing.kafka_container": ("KafkaContainer",),
        },
    )
