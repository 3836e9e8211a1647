"""docs/testing.md: it names every fixture and marker, and its examples are tests that pass."""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.test_testing import run_pytest
from tidelog.testing import plugin

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

PROGRAM = """
import confluent_kafka


def write_orders(servers):
    config = servers if isinstance(servers, dict) else {"bootstrap.servers": servers}
    producer = confluent_kafka.Producer(config)
    producer.produce("orders", b"first")
    assert producer.flush(100) == 0


def copy_orders(source, target):
    for servers in (source, target):
        write_orders(servers)

"""


def test_fixtures_and_markers() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", SECTIONS["Fixtures"], re.MULTILINE)
    assert set(documented) == {name for name in vars(plugin) if "tidelog_" in name}
    markers = re.findall(r"^\| `(\w+)\(", SECTIONS["Fixtures"], re.MULTILINE)
    assert set(markers) == {plugin.BROKER_MARK, plugin.TOPICS_MARK}
    assert plugin.KEEP in SECTIONS["A failed test's log"]
    assert plugin.CONTAINERS in SECTIONS["Moving from testcontainers"]


def test_the_examples_pass(tmp_path: Path) -> None:
    assert len(EXAMPLES) == 4
    for number, example in enumerate(EXAMPLES):
        if "def test_" not in example:
            body = "".join(f"    {line}\n" for line in example.splitlines())
            example = f"def test_it():\n{body}"
        (tmp_path / f"test_{number}.py").write_text(PROGRAM + example)
    ran = run_pytest(tmp_path, "--strict-markers")
    assert "7 passed" in ran.stdout, ran.stdout + ran.stderr
