"""docs/broker.md: its tables are those of the code, its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.broker.config import BROKER_PROPERTIES
from tidelog.broker.dispatch import APIS
from tidelog.broker.metrics import Metrics
from tidelog.broker.prometheus import BrokerCollector, Snapshot
from tidelog.storage.topic_statistics import TopicStatistics
from tidelog.testing import plugin

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "broker.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_apis_and_versions() -> None:
    documented = re.findall(r"^\| (\w+) \| (\d+) to (\d+) \|", SECTIONS["What it speaks"], re.MULTILINE)
    assert {name: (int(first), int(last)) for name, first, last in documented} == {
        api.request.API_NAME: (api.min_version, api.max_version) for api in APIS
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
    collected = BrokerCollector(lambda: Snapshot(metrics, {"orders": TopicStatistics(partitions=1)})).collect()
    served = {family.name + ("_total" if family.type == "counter" else "") for family in collected if family.samples}
    assert set(re.findall(r"`(tidelog_\w+)`", SECTIONS["Metrics"].partition("KIP-32 wants")[0])) == served


def test_fixtures() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", SECTIONS["pytest"], re.MULTILINE)
    assert set(documented) == {name for name in vars(plugin) if "tidelog_" in name}


@pytest.mark.parametrize(("example", "shown"), [(EXAMPLES[0], "data "), (EXAMPLES[1], "1\n")])
def test_examples(example: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "broker.md", "exec"), {})
    assert shown in capsys.readouterr().out
    assert len(EXAMPLES) == 3
