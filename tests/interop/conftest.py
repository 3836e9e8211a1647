"""Brokers shared by the tests. A test that stops a shared broker must start it again."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.interop.gate import COLLECTED, of_each_file
from tests.interop.spark_program import SparkProgram
from tests.kafka import Kafka391, outputs, why_not
from tests.s3.server import S3Server


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects some of them
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test of this folder needs real Kafka."""
    for item in items:
        if "interop" in item.path.parts:
            item.add_marker(pytest.mark.interop)
    config.stash[COLLECTED] = of_each_file(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip if Java or Maven is missing. A hook and not a fixture, so that the summary has one line for all tests."""
    reason = why_not()
    if reason is not None and "interop" in item.path.parts:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show in the report of a failed test what its brokers and other processes wrote last."""
    report = yield
    if report.failed:
        report.sections += [(f"the end of {path}", end) for path, end in outputs.ends_since(call.start)]
    return report


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    """An Apache Kafka 3.9.1 broker with short intervals for background work."""
    properties = {
        "log.initial.task.delay.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.flush.start.offset.checkpoint.interval.ms": "200",
    }
    with Kafka391(tmp_path_factory.mktemp("kafka-3.9.1"), properties) as running:
        yield running


@pytest.fixture(scope="session")
def spark_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProgram]:
    """A Spark driver in its own process, with Spark's Kafka connector."""
    with SparkProgram(tmp_path_factory.mktemp("spark")) as program:
        yield program


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with one bucket, behind a proxy that counts requests and makes them fail."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server
