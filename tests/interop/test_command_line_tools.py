"""Kafka 3.9.1's command-line tools that write and read, against the broker. Those for admins are in test_admin_tools, those for
groups in test_group_tools.

Run as their shell scripts do, with a user's options. `TIDELOG_CLIENTS_AGAINST=3.9.1` points them at Kafka instead.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peers import Peer, served
from tests.kafka.clients import NewRow, consume, produce, watermarks
from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.kafka.tools import complaints, dump_log_segments, producer_performance

RELEASE = "3.9.1"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"

FIRST_MS = int(time.time() * 1000) - 3_600_000


def tool(main: str, *arguments: str, stdin: str | None = None) -> str:
    return run_java(classpath(RELEASE), main, arguments, stdin=stdin)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with served(tmp_path_factory.mktemp("tools")) as peer:
        yield peer


def test_console_producer_and_consumer(peer: Peer) -> None:
    """Keys and headers both ways, the time of each record, a partition from an offset on."""
    peer.create_topics({"console": {}}, partitions=2)
    lines = "".join(f"trace:{number}\tkey-{number}\tvalue {number}\n" for number in range(6))
    began_ms = int(time.time() * 1000)
    server = ("--bootstrap-server", peer.bootstrap, "--topic", "console")
    parsing = ("--property", "parse.key=true", "--property", "parse.headers=true")
    tool(CONSOLE_PRODUCER, *server, *parsing, "--compression-codec", "zstd", stdin=lines)
    ended_ms = int(time.time() * 1000)
    printing = [
        word for name in ("timestamp", "partition", "offset", "headers", "key") for word in ("--property", f"print.{name}=true")
    ]
    high = [watermarks(peer.bootstrap, "console", partition)[1] for partition in range(2)]
    assert sum(high) == 6
    seen = []
    for partition in range(2):
        if high[partition] > 1:
            limits = ("--partition", str(partition), "--offset", "1", "--max-messages", str(high[partition] - 1))
            printed = tool(CONSOLE_CONSUMER, *server, *limits, *printing)
            for number, line in enumerate(printed.splitlines()[: high[partition] - 1], 1):
                stamp, place, offset, headers, key, value = line.split("\t")
                assert place == f"Partition:{partition}"
                assert offset == f"Offset:{number}"
                assert began_ms <= int(stamp.removeprefix("CreateTime:")) <= ended_ms
                assert headers == f"trace:{key.removeprefix('key-')}"
                assert value == f"value {key.removeprefix('key-')}"
                seen.append(key)
    assert len(seen) == len(set(seen)) == sum(max(0, each - 1) for each in high) > 0


def test_get_offsets_by_time(peer: Peer) -> None:
    """By a time, by the largest, and after all."""
    peer.create_topics({"by-time": {"segment.bytes": "2000"}})
    rows = [NewRow(None, b"x" * 100, FIRST_MS + 1000 * (number ^ 1)) for number in range(40)]
    produce(peer.bootstrap, "by-time", rows, batch_records=5)
    asked = {
        "max-timestamp": 38,
        str(FIRST_MS + 10_000): 10,
        str(FIRST_MS + 39_001): None,
    }
    for when, offset in asked.items():
        printed = tool(GET_OFFSETS, "--bootstrap-server", peer.bootstrap, "--topic", "by-time", "--time", when)
        assert printed.strip() == ("" if offset is None else f"by-time:0:{offset}"), when


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_producer_performance(peer: Peer, codec: str) -> None:
    topic = f"perf-{codec}"
    peer.create_topics({topic: {"segment.bytes": "1048576"}})
    report = producer_performance(peer.bootstrap, topic, 50_000, compression_type=codec, acks="all")
    assert re.search(r"^50000 records sent", report, re.MULTILINE), report
    assert watermarks(peer.bootstrap, topic) == (0, 50_000)
    folder = peer.data / f"{topic}-0"
    closed = sorted(folder.glob("*.log"))[:-1]
    assert closed
    dump = dump_log_segments([file for log in closed for file in sorted(Path(folder).glob(f"{log.stem}.*index"))] + closed)
    assert complaints(dump) == []


def test_verifiable_producer(peer: Peer) -> None:
    """Each record acknowledged by name, at its offset, with the create time that was asked for."""
    peer.create_topics({"verifiable": {}})
    printed = tool(
        VERIFIABLE_PRODUCER,
        *("--bootstrap-server", peer.bootstrap, "--topic", "verifiable", "--max-messages", "20", "--acks", "-1"),
        *("--message-create-time", str(FIRST_MS), "--value-prefix", "7"),
    )
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    sent = [event for event in events if event["name"] == "producer_send_success"]
    assert [(event["offset"], event["value"]) for event in sent] == [(number, f"7.{number}") for number in range(20)]
    assert next(event for event in events if event["name"] == "tool_data")["acked"] == 20
    rows = consume(peer.bootstrap, "verifiable")
    assert [row.value for row in rows] == [b"7.%d" % number for number in range(20)]
    assert all(FIRST_MS <= row.timestamp < FIRST_MS + 60_000 and row.timestamp_type == 1 for row in rows)


def test_end_to_end_latency(peer: Peer) -> None:
    """One record after the other, produced, then fetched by a long poll: what each takes, and none is lost."""
    peer.create_topics({"latency": {}})
    # When it has said all it commits its offsets, for a group.
    printed = tool(END_TO_END_LATENCY, peer.bootstrap, "latency", "300", "1", "100")
    assert re.search(r"Avg latency: [\d.]+ ms", printed), printed
    assert watermarks(peer.bootstrap, "latency") == (0, 300)
