"""Makes pytest fixtures that run a broker for a scope. Call it in a `conftest.py` or a test module:

    kafka = broker_fixture(scope="session", num_partitions=3)
    secured_kafka = broker_fixture(scope="module", tls=True, users={"alice": "secret"}, topics=["orders"])

Each call makes a fixture with its own broker. The brokers run side by side, on free ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pytest

from tidelog.testing.brokers_of_run import BrokersOfRun

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

Scope = Literal["session", "package", "module", "class", "function"]

RUN: pytest.StashKey[BrokersOfRun] = pytest.StashKey()


class MakeBroker(Protocol):
    """The type of the fixture `make_tidelog_broker`. A call starts a broker, which stops when the test ends."""

    def __call__(self, data_dir: str | Path | None = None, **arguments: Any) -> Broker:
        """Start a broker and return it. Raises the same errors as `tidelog.Broker` and its `start`."""


def broker_fixture(*, scope: Scope = "function", name: str | None = None, topics: Iterable[str] = (), **arguments: Any) -> Any:
    """Return a pytest fixture that runs a broker with these `topics`. All other arguments are those of `tidelog.Broker`.

    The fixture's name is `name`, or the name of the variable to which it is assigned. If arguments are wrong, the tests that use
    the fixture fail.
    """
    created = tuple(topics)

    @pytest.fixture(scope=scope, name=name)
    def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
        called = request.fixturename
        assert called is not None
        test = request.node.nodeid if scope == "function" else ""
        folder = tmp_path_factory.mktemp("tidelog") / called
        with request.config.stash[RUN].started(folder, called, called, test=test, **arguments) as started:
            for topic in created:
                started.create_topic(topic, started.call(lambda running: running.node.config.num_partitions))
            yield started

    return broker
