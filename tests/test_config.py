"""Topic properties: Kafka's names, defaults and ranges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog import config
from tidelog.config import LogConfig
from tidelog.errors import InvalidArgumentError

SPEC = Path(__file__).parent.parent / "docs" / "spec" / "storage.md"


def test_defaults_are_those_of_the_specification() -> None:
    """Spec §17, and the table in the module's own docstring."""
    section = SPEC.read_text(encoding="utf-8").partition("\n## 17.")[2].partition("\n## ")[0]
    specified = {name: int(value) for name, value in re.findall(r"([a-z.]+) (-?\d+)", section.replace("−", "-"))}
    documented = {name: int(value) for name, value in re.findall(r"(?m)^([a-z.]+) +(-?\d+) ", config.__doc__ or "")}
    defaults = LogConfig().to_properties()
    assert documented == defaults
    assert {name: specified[name] for name in defaults} == defaults


def test_properties_come_and_go_under_kafkas_names() -> None:
    properties = {"segment.bytes": "16384", "index.interval.bytes": 512}
    assert LogConfig.from_properties(properties) == LogConfig(segment_bytes=16384, index_interval_bytes=512)
    assert LogConfig.from_properties(LogConfig(segment_ms=1).to_properties()) == LogConfig(segment_ms=1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("segment.bytes", "13", "segment.bytes is out of range: found 13"),
        ("segment.ms", 0, "segment.ms is out of range"),
        ("segment.index.bytes", 2**31, "segment.index.bytes is out of range"),
        ("index.interval.bytes", "4 KiB", "index.interval.bytes is a whole number: found '4 KiB'"),
        ("retention.bytez", 1, "unknown topic property: found retention.bytez"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, value: str | int, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(words)):
        LogConfig.from_properties({name: value})
