"""docs/broker.md, docs/transactions.md: their tables are those of the code, their examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.broker.apis.api_versions import LAST_OF_3_9
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.loop.metrics import Metrics
from tidelog.broker.replicas.replica_numbers import ReplicaNumbers
from tidelog.broker.server.scraped.group_lags import Scraped
from tidelog.broker.server.scraped.prometheus import BrokerCollector, Snapshot
from tidelog.broker.settings.broker_config import BROKER_PROPERTIES
from tidelog.groups.lag import NextRecord, PartitionLag, Precision, Retention
from tidelog.storage.topics.topic_statistics import TopicStatistics

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "broker.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TRANSACTIONS = (Path(__file__).resolve().parents[2] / "docs" / "transactions.md").read_text(encoding="utf-8")


def test_apis_and_versions() -> None:
    documented = re.findall(r"^\| (\w+) \| (\d+)(?: to (\d+))? \|", SECTIONS["What it speaks"], re.MULTILINE)
    assert {name: (int(first), int(last or first)) for name, first, last in documented} == {
        api.request.API_NAME: (api.served.first, LAST_OF_3_9.get(api.name, api.served.last)) for api in APIS
    }


def test_properties() -> None:
    table = re.findall(r"^\| (`.*?) \| (.*?) \|", SECTIONS["Kafka's server.properties"], re.MULTILINE)
    documented = {name: default for names, default in table for name in re.findall(r"`([a-z.]+)`", names)}
    assert documented.keys() >= BROKER_PROPERTIES.keys() - {"message.max.bytes"}


def test_metrics() -> None:
    metrics = Metrics()
    metrics.api(0, "Produce").microseconds.record(1)
    metrics.fetched("orders", 1)
    metrics.topics["orders"].append_latency_ms.record(1)
    lag = PartitionLag(
        topic="orders",
        partition=0,
        now_ms=2,
        committed_offset=0,
        log_start_offset=0,
        end_offset=9,
        high_watermark=9,
        next_record=NextRecord(0, 1),
        group_per_second=2,
        topic_per_second=1,
        retention=Retention(Precision.NEVER),
    )
    snapshot = Snapshot(metrics, {"orders": TopicStatistics(partitions=1)}, ReplicaNumbers())
    collected = BrokerCollector(lambda: snapshot, lambda: Scraped({"app": 1}, [("app", lag)], 0)).collect()
    served = {family.name + ("_total" if family.type == "counter" else "") for family in collected if family.samples}
    assert set(re.findall(r"`(tidelog_\w+)`", SECTIONS["Metrics"].partition("KIP-32 wants")[0])) == served


@pytest.mark.parametrize(
    ("example", "shown"),
    [(EXAMPLES[0], "data "), (EXAMPLES[1], "SASL_SSL\n"), (EXAMPLES[2], "2 [b'value']\n"), (EXAMPLES[3], "1\n")],
)
def test_examples(example: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "broker.md", "exec"), {})
    assert shown in capsys.readouterr().out
    assert len(EXAMPLES) == 4


def test_the_example_of_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", TRANSACTIONS, re.MULTILINE | re.DOTALL)
    exec(compile(example, "transactions.md", "exec"), {})
    assert capsys.readouterr().out == "[b'kept']\n"
