"""The server's answers in this process, over golden logs, and over a broker with its own folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

import tidelog
from tests.broker.conftest import RunningBroker
from tests.cli.conftest import KAFKA_3
from tests.patience import PATIENCE_S
from tidelog import NewRecord
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.clock import Clock, ManualClock
from tidelog.model import TopicPartition
from tidelog.web.app import make_app
from tidelog.web.context import Context
from tidelog.web.jobs import Jobs

NOW = 1_373_414_400_000  # 2013-07-10
FOLDER, BROKERS = "0", "1"


class Answers:
    """Asks the application, without its guard."""

    def __init__(self, client: TestClient, context: Context) -> None:
        self.client = client
        self.context = context

    def ask(self, path: str, status: int = 200, **parameters: Any) -> Any:
        found = self.client.get(f"/api/{path}", params=parameters)
        assert found.status_code == status, found.text
        return found.json()

    def ask_again(self, path: str, **parameters: Any) -> Any:
        """Ask until nothing is pending."""
        until = time.monotonic() + PATIENCE_S
        while '"pending":true' in self.client.get(f"/api/{path}", params=parameters).text:
            assert time.monotonic() < until
        return self.ask(path, **parameters)

    def refused(self, path: str, status: int, **parameters: Any) -> dict[str, Any]:
        error = self.ask(path, status, **parameters)["error"]
        assert set(error) == {"what", "where", "found", "expected"} and error["what"]
        return error

    def all_records(self, **parameters: Any) -> list[dict[str, Any]]:
        """Every page of a request."""
        found: list[dict[str, Any]] = []
        after = None
        for _ in range(10_000):
            page = self.ask("records", after=after, **parameters)
            found += page["records"]
            after = page["next"]
            assert page["done"] == (after is None)
            if after is None:
                return found
        raise AssertionError("the pages do not end")


@contextmanager
def answering(*addresses: str, clock: Clock | None = None) -> Iterator[Answers]:
    context = Context.of(addresses, clock=clock or ManualClock(NOW))
    jobs = Jobs()
    try:
        with TestClient(make_app(context, jobs)) as client:
            yield Answers(client, context)
    finally:
        jobs.close()
        context.sources.close()


@pytest.fixture(scope="module")
def golden() -> Iterator[Answers]:
    with answering(str(KAFKA_3)) as found:
        yield found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answers, RunningBroker]]:
    """A running broker, its folder as source 0 and itself as source 1: a topic with late records, and a group."""
    folder = tmp_path_factory.mktemp("web") / "data"
    running = RunningBroker(folder, ManualClock(NOW), offsets_topic_num_partitions=1, log_retention_ms=-1)
    try:
        running.create_topic("orders", 2, segment_bytes=4096)
        with tidelog.connect(running.bootstrap_servers, clock=running.clock) as client:
            for at in range(40):
                late = 15_000 if at % 7 == 0 else 0
                records = [
                    NewRecord(b"%d" % at, key=b"k%d" % (at % 3), timestamp=NOW - 40_000 + at * 1000 - late, partition=number)
                    for number in (0, 1)
                ]
                client.produce_many("orders", records)
            commit_offsets(client.cluster, "early", {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 40})
        with answering(str(folder), running.bootstrap_servers, clock=running.clock) as found:
            yield found, running
    finally:
        running.stop()
