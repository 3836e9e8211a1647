"""The pytest plugin: fixtures for brokers. pytest loads it if Tidelog is installed.

| fixture | is |
|---|---|
| `tidelog_broker` | a running broker with its data in the test's temporary folder; it uses `tidelog_clock` if the test does |
| `tidelog_broker_properties` | the broker's properties; redefine it in a module or class: `{"log.retention.ms": 1000}` |
| `tidelog_clock` | a clock that starts at the current time, and stands still until the test advances it |
| `make_tidelog_broker` | starts more brokers, with the arguments of `tidelog.Broker`; they stop when the test ends |

| marker | |
|---|---|
| `tidelog_broker(tls=True, num_partitions=3)` | arguments for the fixture `tidelog_broker`, which override its properties |
| `tidelog_topics("orders", "payments", partitions=3)` | topics that exist during the test, in the broker of each fixture |

| option | |
|---|---|
| `--tidelog-keep` | keeps the log folders of failed tests, and prints the commands that show them (`brokers_of_run`) |
| `--tidelog-testcontainers` | replaces `testcontainers.kafka.KafkaContainer` with `tidelog.testing.KafkaContainer` |

Until a test requests one of these fixtures, only pytest is imported.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.testing.brokers_of_run import KEPT, TOPICS_MARK, BrokersOfRun
from tidelog.testing.scoped_brokers import RUN, MakeBroker

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.clock import ManualClock
    from tidelog.config import PropertyValue

KEEP, CONTAINERS = "--tidelog-keep", "--tidelog-testcontainers"
BROKER_MARK = "tidelog_broker"


@pytest.fixture
def tidelog_broker_properties() -> Mapping[str, PropertyValue]:
    """The properties of `tidelog_broker`, under Kafka's names."""
    return {}


@pytest.fixture
def tidelog_broker(
    request: pytest.FixtureRequest, tmp_path: Path, tidelog_broker_properties: Mapping[str, PropertyValue]
) -> Iterator[Broker]:
    """A running broker. Clients connect to `tidelog_broker.bootstrap_servers`."""
    arguments: dict[str, Any] = dict(tidelog_broker_properties)
    if "tidelog_clock" in request.fixturenames:
        arguments["clock"] = request.getfixturevalue("tidelog_clock")
    for mark in reversed([*request.node.iter_markers(BROKER_MARK)]):  # The test's own marker comes last, so it takes precedence.
        arguments |= mark.kwargs
    name = "tidelog_broker"
    with request.config.stash[RUN].started(tmp_path / name, name, name, test=request.node.nodeid, **arguments) as broker:
        yield broker


@pytest.fixture
def make_tidelog_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBroker]:
    """A function that starts a broker and returns it."""
    run, test = request.config.stash[RUN], request.node.nodeid
    with ExitStack() as stack:
        count = 0

        def make(data_dir: str | Path | None = None, **arguments: Any) -> Broker:
            nonlocal count
            name = f"tidelog-{count}"
            count += 1
            if data_dir is not None:
                arguments["data_dir"] = data_dir
            fixture = "make_tidelog_broker"
            return stack.enter_context(run.started(tmp_path / name, name, fixture, test=test, takes_topics=False, **arguments))

        yield make


@pytest.fixture
def tidelog_clock() -> ManualClock:
    """A clock for brokers that moves only when the test advances it."""
    from tidelog.clock import ManualClock, SystemClock

    return ManualClock(SystemClock().now_ms())


# --- pytest's hooks


@pytest.hookimpl
def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's command-line options."""
    group = parser.getgroup("tidelog", "brokers for tests (Tidelog)")
    group.addoption(
        KEEP, action="store_true", help=f"Keep the log folders of failed tests in {KEPT}, and say how to look at them."
    )
    group.addoption(
        CONTAINERS, action="store_true", help="Run a Tidelog broker wherever a test starts testcontainers' KafkaContainer."
    )


@pytest.hookimpl
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Replace testcontainers' class before a `conftest.py` imports it."""
    if early_config.known_args_namespace.tidelog_testcontainers:
        from tidelog.testing.kafka_container import replace_testcontainers

        replace_testcontainers()


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and prepare the run."""
    config.addinivalue_line("markers", f"{BROKER_MARK}(**arguments): arguments of the fixture tidelog_broker.")
    config.addinivalue_line("markers", f"{TOPICS_MARK}(*names, partitions=1, **properties): topics that exist during the test.")
    run = config.stash[RUN] = BrokersOfRun(config.rootpath / KEPT if config.getoption(KEEP) else None)
    before, BrokersOfRun.active = BrokersOfRun.active, run

    def restore() -> None:
        BrokersOfRun.active = before

    config.add_cleanup(restore)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Create the topics that the test's markers request."""
    item.config.stash[RUN].begin(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Delete the topics that were created for the test."""
    item.config.stash[RUN].end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the commands that show the kept logs to a failed test's report."""
    report = yield
    if report.failed:
        commands = item.config.stash[RUN].failed(item)
        if commands:
            report.sections.append(("the log of this test, kept by Tidelog", commands))
    return report
