"""docs/client.md: its examples run, and it names what there is. And: what connecting costs to import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog
from tidelog.client.client import Client
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.client.reading.offsets import NotFound
from tidelog.model import TopicPartition

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_examples(broker: tidelog.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    first, answers, groups = EXAMPLES
    names: dict[str, object] = {"tidelog": tidelog}
    exec(first.replace("localhost:9092", broker.bootstrap_servers), names)
    (said,) = capsys.readouterr().out.splitlines()
    partition = int(said.split()[0])
    assert said == f"{partition} 0 1373448600000 b'a cup'"
    with tidelog.connect(broker.bootstrap_servers) as client:
        exec(answers, names | {"client": client})
    none = f"TopicPartition(topic='orders', partition={{}}) {NotFound.NOTHING_THAT_LATE.value}"
    found = "TopicPartition(topic='orders', partition={}) 0 1373448600000 0"
    assert capsys.readouterr().out.splitlines() == [(found if n == partition else none).format(n) for n in (0, 1)]
    with tidelog.connect(broker.bootstrap_servers) as client:
        client.cluster.topic("refunds", create=True)
        commit_offsets(client.cluster, "billing", {TopicPartition("orders", partition): 1})
    exec(groups.replace("localhost:9092", broker.bootstrap_servers), names)
    lag, *changes = capsys.readouterr().out.splitlines()
    assert lag.startswith(f"orders {partition} 1 0 0 TimeToEnd(")
    assert sorted(changes) == ["1 0 1 0", *["None 0 0 0"] * 3]


def test_every_call_and_argument_is_named() -> None:
    public = [name for name, value in vars(Client).items() if inspect.isfunction(value) and not name.startswith("_")]
    for name in set(public) - {"close", "topics", "partitions"}:
        assert f"`{name}" in PAGE, name
        for argument in inspect.signature(getattr(Client, name)).parameters:
            assert argument in PAGE, f"{name}: {argument}"
    for argument in inspect.signature(tidelog.connect).parameters:
        assert argument in PAGE
    for reason in NotFound:
        assert reason.name in PAGE


def test_connecting_loads_nothing_heavy() -> None:
    heavy = ("numpy", "pandas", "pyarrow", "pyspark", "asyncio", "rich", "click")
    code = f"import sys, tidelog; tidelog.connect; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
