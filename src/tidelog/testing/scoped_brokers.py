"""A pytest fixture that runs a broker for a scope, in a `conftest.py` or a test module:

    kafka = broker_fixture(scope="session", num_partitions=3)
    secured_kafka = broker_fixture(scope="module", tls=True, users={"alice": "secret"}, topics=["orders"])

Each call makes a further broker: they run side by side, on free ports.
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
    """The fixture `make_tidelog_broker`: start a broker with the arguments of `tidelog.Broker`; it ends with the test."""

    def __call__(self, data_dir: str | Path | None = None, **arguments: Any) -> Broker:
        """Return a running broker. Raises what `tidelog.Broker` and its start raise."""


def broker_fixture(*, scope: Scope = "function", name: str | None = None, topics: Iterable[str] = (), **arguments: Any) -> Any:
    """Return a pytest fixture: a running broker with these `topics`, made with the other arguments of `tidelog.Broker`.

    The fixture is called as the variable that it is assigned to, or `name`. Wrong arguments fail the tests that use it.
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
