"""The source reading from brokers: the rows of the folder that they serve, by the same options."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from tests.spark.conftest import read_rows
from tests.spark.golden import BASE_MS, log_dir, rows
from tidelog.clock import SystemClock
from tidelog.errors import (
    BrokerUnreachableError,
    InvalidArgumentError,
    NotFoundError,
    OffsetOutOfRangeError,
    TidelogError,
    UnknownTopicOrPartitionError,
)
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.source import TidelogReader
from tidelog.spark.tasks import plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("golden") / "data"
    shutil.copytree(Path(log_dir()), folder)
    with tidelog.Broker(data_dir=folder, log_retention_ms=-1) as broker:
        yield broker.bootstrap_servers


def parse(brokers: str | None, **options: Any) -> ReadOptions:
    place = {"path": log_dir()} if brokers is None else {"kafka.bootstrap.servers": brokers}
    return parse_options(place | {name: str(value) for name, value in options.items()}, SystemClock())


def read(options: ReadOptions, tasks: int = 2) -> list[dict[str, Any]]:
    reader: TidelogReader = pickle.loads(pickle.dumps(TidelogReader(options, tasks)))
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


JSON = '{"two-partitions": {"0": %d, "1": %d}}'


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "two-partitions"},
        {"subscribe": "two-partitions,v2-zstd-lat,empty", "columns": "value,offset,createTime"},
        {"subscribePattern": "v2-.*-ct", "startTime": BASE_MS, "endTime": BASE_MS + 20_000},
        {"assign": '{"two-partitions": [1]}', "includeHeaders": "true"},
        {"subscribe": "transactions", "isolationLevel": "read_committed"},
        {"subscribe": "transactions", "kafka.isolation.level": "read_committed", "startTime": "2020-01-01"},
        {"subscribe": "two-partitions", "startingTimestamp": BASE_MS, "endingTimestamp": BASE_MS + 50_000},
        {"subscribe": "two-partitions", "startingOffsetsByTimestamp": JSON % (BASE_MS, 0)},
        {"subscribe": "two-partitions", "startingTimestamp": 10**15, "startingOffsetsByTimestampStrategy": "latest"},
        {"subscribe": "two-partitions", "startingOffsets": JSON % (7, -2), "endingOffsets": JSON % (190, -1)},
        {"subscribe": "deleted-prefix", "startingOffsets": '{"deleted-prefix": {"0": 0}}', "failOnDataLoss": "false"},
    ],
    ids=str,
)
def test_rows_are_the_folder_s(brokers: str, options: dict[str, Any]) -> None:
    assert read(parse(brokers, **options)) == read(parse(None, **options))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"subscribe": "nowhere"}, UnknownTopicOrPartitionError, "no topic 'nowhere'"),
        ({"assign": '{"two-partitions": [4]}'}, UnknownTopicOrPartitionError, "no partition 4"),
        (
            {"subscribe": "two-partitions", "startingTimestamp": 10**15},
            NotFoundError,
            "two-partitions-0 has no record at or after",
        ),
        ({"subscribe": "two-partitions", "startingOffsets": JSON % (7, 900)}, OffsetOutOfRangeError, "outside two-partitions-1"),
        ({"subscribe": "two-partitions", "startingOffsets": '{"two-partitions": {"0": 1}}'}, InvalidArgumentError, "missing:"),
    ],
)
def test_errors_are_the_folder_s(brokers: str, options: dict[str, Any], error: type[TidelogError], said: str) -> None:
    for place in (brokers, None):
        with pytest.raises(error, match=said):
            plan_tasks(parse(place, **options), 2)


def test_what_names_brokers() -> None:
    assert parse_options({"path": "b:1", "subscribe": "t"}, SystemClock()).source == "b:1"
    both = parse_options({"path": "/data", "kafka.bootstrap.servers": "b:1", "subscribe": "t"}, SystemClock())
    assert (both.source, both.reads_files) == ("/data", True)
    assert both.notices == ("options without effect on files: kafka.bootstrap.servers",)
    used = parse("b:1", subscribe="t", **{"kafka.security.protocol": "plaintext", "kafka.max.poll.records": 1})
    assert used.notices == ("options without effect on this source: kafka.max.poll.records",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": "b"}, "option kafka.bootstrap.servers: not a broker's address"),
        ({"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({"kafka.bootstrap.servers": "b:1", "timeMapDir": "/maps"}, "timeMapDir"),
        ({"path": "b:99999"}, "option path: the port is out of range"),
        ({"kafka.bootstrap.servers": " "}, "no source is given"),
    ],
)
def test_what_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        parse_options({"subscribe": "t"} | options, SystemClock())


def test_nobody_there() -> None:
    with pytest.raises(BrokerUnreachableError):
        plan_tasks(parse("127.0.0.1:1", subscribe="t"), 2)


def test_with_spark(brokers: str, load: Callable[..., DataFrame]) -> None:
    frame = load("two-partitions", path=brokers, includeHeaders="true")
    assert read_rows(frame) == rows("two-partitions")
    assert frame.count() == 500
