"""A topic that the user may not describe: the missing permission is named, in each place that Spark reads from and writes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.broker.test_acls import Secured, allow, topic
from tests.cli.conftest import run
from tests.spark.stream_query import Query
from tests.spark.test_brokers import parse
from tidelog.copying.replay import ReplayRequest, prepare
from tidelog.errors import BrokerError
from tidelog.security.acl import Operation, ResourceType
from tidelog.spark.jobs.mirror import MirrorOptions, mirror
from tidelog.spark.sink.broker_target import partition_counts
from tidelog.spark.sink.sink_options import parse_sink_options
from tidelog.spark.tasks import plan_tasks

SAID = "the user is not authorized: found TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = Secured(tmp_path_factory.mktemp("secured") / "data")
    topic(made, "open", "secret")
    assert made.create(allow(Operation.ALL, ResourceType.TOPIC, "open")) == [0]
    yield made.broker.bootstrap_servers
    made.stop()


def sink(brokers: str) -> object:
    with partition_counts(parse_sink_options({"kafka.bootstrap.servers": brokers, "topic": "secret"}, streaming=False)) as count:
        return count("secret")


def mirrored(brokers: str, tmp_path: Path) -> object:
    options = MirrorOptions(source=brokers, target=brokers, map_dir=str(tmp_path / "map"), topics=("secret",), prefix="a.")
    return mirror(None, options)  # type: ignore[arg-type]  # no task is planned


PLACES: dict[str, Callable[[str, Path], Any]] = {
    "batch": lambda brokers, _: plan_tasks(parse(brokers, subscribe="open,secret"), 2),
    "batch, assigned": lambda brokers, _: plan_tasks(parse(brokers, assign='{"secret": [0]}'), 2),
    "stream": lambda brokers, _: Query({"kafka.bootstrap.servers": brokers, "subscribe": "secret"}).run(),
    "scan": lambda brokers, _: tidelog.scan(brokers, "secret"),
    "replay": lambda brokers, path: prepare(ReplayRequest(brokers, "secret", brokers, "open"), path / "map"),
    "replay into it": lambda brokers, path: prepare(ReplayRequest(brokers, "open", brokers, "secret"), path / "map"),
    "mirror": mirrored,
    "sink": lambda brokers, _: sink(brokers),
}


@pytest.mark.parametrize("place", list(PLACES))
def test_the_missing_permission_is_named(place: str, brokers: str, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=f"topic .?secret.?: {re.escape(SAID)}"):
        PLACES[place](brokers, tmp_path)


def test_the_command_line_says_the_same(brokers: str) -> None:
    for command in (["cat", brokers, "secret"], ["find", brokers, "secret", "--at", "0"], ["stat", brokers, "secret"]):
        assert f"metadata of topic secret: {SAID}" in run(*command).error


def test_a_pattern_sees_what_may_be_seen(brokers: str) -> None:
    tasks = plan_tasks(parse(brokers, subscribePattern=".*"), 1)
    assert {one.topic for task in tasks for one in task} <= {"open"}
