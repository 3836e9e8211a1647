"""Kafka's own command line tools, run as Java programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.kafka.java_tools import run_tool

_RELEASE = "3.9.1"

# What DumpLogSegments of 3.9.1 prints when it has a complaint. It ends with 0 all the same.
_COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|not found in|Found timestamp|out of order|does not match|failed|corrupt|isvalid: false"
    r"|exception|error|invalid bytes|could not|Index offset",
    re.IGNORECASE,
)
_RECORD_LINE = re.compile(r"^(\| offset|baseOffset):")


def dump_log_segments(files: Sequence[Path], *options: str, timeout_s: float = 300, release: str = _RELEASE) -> str:
    """Run DumpLogSegments over .log, .index, .timeindex, .txnindex or .snapshot files; return what it prints."""
    arguments = ["--files", ",".join(map(str, files)), *options]
    return run_tool(release, "kafka.tools.DumpLogSegments", arguments, timeout_s=timeout_s)


def complaints(dump: str) -> list[str]:
    """Return the lines of a dump that report a fault (an empty list: none)."""
    lines = dump.splitlines()
    found = [line for line in lines if _COMPLAINTS.search(line) and not _RECORD_LINE.match(line)]
    return found + [line for line in lines if _RECORD_LINE.match(line) and "isvalid: false" in line]


def producer_performance(
    bootstrap: str, topic: str, records: int, record_bytes: int = 100, timeout_s: float = 600, **properties: object
) -> str:
    """Load `records` random records with Kafka's ProducerPerformance, as fast as it goes; return its report.

    Keys are null and timestamps are now. Producer properties are Kafka's names, with `_` for `.`: `compression_type="lz4"`.
    """
    settings = {"bootstrap.servers": bootstrap, "batch.size": "65536", "linger.ms": "5", "acks": "1"}
    settings |= {key.replace("_", "."): str(value) for key, value in properties.items()}
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"]
    arguments += ["--producer-props", *(f"{key}={value}" for key, value in settings.items())]
    return run_java(
        classpath(_RELEASE), "org.apache.kafka.tools.ProducerPerformance", arguments, heap_mb=512, timeout_s=timeout_s
    )
