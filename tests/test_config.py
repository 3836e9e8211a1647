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
    specified = dict(re.findall(r"([a-z.]+) ([-.0-9]+)", section.replace("−", "-")))
    documented = dict(re.findall(r"(?m)^([a-z0-9.]+) {2,}(\S+) {2,}", config.__doc__ or ""))
    defaults = {name: _text(value) for name, value in LogConfig().to_properties().items()}
    assert {name: value for name, value in documented.items() if not name.startswith("=") and name != "property"} == defaults
    shared = specified.keys() & defaults.keys()
    assert len(shared) >= 11
    assert {name: specified[name].rstrip(".") for name in shared} == {name: defaults[name] for name in shared}


def _text(value: object) -> str:
    if value == "":
        return '""'
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_names_of_brokers_of_the_seeds_and_of_older_units(caplog: pytest.LogCaptureFixture) -> None:
    config._warned.clear()
    old = {
        "max.message.time.difference.ms": "1000",
        "log.index.size.max.bytes": 4096,
        "log.roll.hours": 2,
        "log.retention.hours": "-1",
    }
    expected = LogConfig(
        message_timestamp_difference_max_ms=1000, segment_index_bytes=4096, segment_ms=2 * 3600 * 1000, retention_ms=-1
    )
    assert LogConfig.from_properties(old) == expected
    assert LogConfig.from_properties(old) == expected
    assert sorted(caplog.messages) == [
        "log.index.size.max.bytes is used as segment.index.bytes",
        "log.retention.hours is used as retention.ms",
        "log.roll.hours is used as segment.ms",
        "max.message.time.difference.ms is used as message.timestamp.difference.max.ms",
    ]


def test_a_finer_unit_and_the_topics_own_name_win() -> None:
    assert LogConfig.from_properties({"log.roll.ms": 5, "log.roll.hours": 2}).segment_ms == 5
    assert LogConfig.from_properties({"segment.ms": 7, "log.roll.ms": 5}).segment_ms == 7


@pytest.mark.parametrize(
    ("release", "magic"),
    [("0.9.0", 0), ("0.9.0.1", 0), ("0.10.0-IV1", 1), ("0.10.2", 1), ("0.11.0", 2), ("2.4", 2), ("3.0-IV1", 2)],
)
def test_message_format(release: str, magic: int) -> None:
    assert LogConfig(message_format_version=release).magic == magic


def test_timestamp_limits_fall_back_to_the_difference() -> None:
    """LogConfigTest.testTimestampBeforeMaxMsUsesDeprecatedConfig."""
    limits = LogConfig(message_timestamp_difference_max_ms=10, message_timestamp_after_max_ms=3)
    assert (limits.timestamp_before_max_ms, limits.timestamp_after_max_ms) == (10, 3)
    limits = LogConfig(message_timestamp_difference_max_ms=10, message_timestamp_before_max_ms=3)
    assert (limits.timestamp_before_max_ms, limits.timestamp_after_max_ms) == (3, 10)


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
        ("index.interval.bytes", "4 KiB", "index.interval.bytes must be a whole number: found '4 KiB'"),
        ("cleanup.policy", "shrink", "cleanup.policy has an unknown value: found 'shrink'"),
        ("message.format.version", "old", "message.format.version must be a Kafka release"),
        ("min.cleanable.dirty.ratio", "1.5", "min.cleanable.dirty.ratio must be a ratio"),
        ("preallocate", "maybe", "preallocate must be true or false"),
        ("message.timestamp.type", "createtime", "message.timestamp.type has an unknown value"),
        ("log.retention.hours", "a week", "log.retention.hours (retention.ms) must be a whole number: found 'a week'"),
        ("log.roll.hours", 0, "log.roll.hours (segment.ms) is out of range: found 0"),
        ("message.max.bytes", "1m", "message.max.bytes (max.message.bytes) must be a whole number"),
        ("retention.bytez", 1, "unknown topic property: found retention.bytez"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, value: str | int, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(words)):
        LogConfig.from_properties({name: value})
