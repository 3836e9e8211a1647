"""Topics in message formats v0 and v1 beside Kafka 2.4.1, the last release here that still stores them.

Kafka 2.4.1 knows fewer versions of each API than 3.9.1: those that both know are asked. How bad records are refused is 3.9.1's
(`test_produce`): 2.4.1 closes the connection on most of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.conftest import BOTH, address
from tests.interop.differential.pair import Pair
from tests.interop.differential.record_sets import T, build, good_sets
from tests.interop.differential.requests import fetch, list_offsets, produce
from tests.kafka import Kafka241
from tests.kafka.java import wait_until
from tidelog.broker.broker import Broker
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

FORMATS = {0: "0.9.0", 1: "0.10.2"}
TOPIC = 2


class OldPair(Pair):
    """Kafka 2.4.1 knows no topic ids."""

    metadata_version = 9


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("old")
    # 2.4.1 has one bound for times, and none by default.
    mine: dict[str, Any] = {name: value for name, value in BOTH.items() if "timestamp" not in name}
    with Kafka241(folder / "kafka", mine) as kafka, Broker(folder / "tidelog", **BOTH) as tidelog:
        both = OldPair(address(kafka.bootstrap), address(tidelog.bootstrap_servers))
        # 2.4.1 sends a log that needs no conversion as far as it was read; 3.9.1 and Tidelog fill up what was converted.
        for side in both.sides:
            side.compares_tails = False
        yield both
        both.close()


PROBE = "probe"


def set_config(pair: Pair, topic: str, name: str, value: str) -> None:
    change = AlterConfigsResource(TOPIC, topic, [AlterableConfig(name, 0, value)])
    pair.ask(f"{topic}: {name} {value}", IncrementalAlterConfigsRequest([change]), 0)


def set_format(pair: Pair, topic: str, value: str) -> None:
    """Change a live topic's message format, and wait until Kafka goes by it.

    It answers before it does; but it makes such changes one after the other: once a later one has had its effect on another
    topic, this one has, too.
    """
    set_config(pair, topic, "message.format.version", value)
    if PROBE not in pair.tidelog.topic_ids:
        pair.create(PROBE)
    data = build([Record(0, T, 0, None, b"probe", ())], 2)
    for limit, expected in (("1", ErrorCode.MESSAGE_TOO_LARGE), ("1000", ErrorCode.NONE)):
        set_config(pair, PROBE, "max.message.bytes", limit)
        wait_until(lambda: answer_to(pair, data) == expected, f"Kafka to take max.message.bytes={limit}")  # noqa: B023


def answer_to(pair: Pair, data: bytes) -> int:
    pair.kafka.ask(produce(PROBE, data), 7, has_answer=True)
    return int(pair.kafka.last.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("magic", FORMATS)
@pytest.mark.parametrize("kind", ["plain", "append-time", "lz4", "compact"])
def test_produce_and_fetch(old: Pair, magic: int, kind: str) -> None:
    """Records of every format into the topic, and its log read back by fetches of every version."""
    properties: dict[str, Any] = {
        "plain": {},
        "append-time": {"message_timestamp_type": "LogAppendTime"},
        "lz4": {"compression_type": "lz4"},
        "compact": {"cleanup_policy": "compact"},
    }[kind]
    topic = f"v{magic}-{kind}"
    old.create(topic, message_format_version=FORMATS[magic], **properties)
    for sent in (0, 1):
        for one in good_sets(sent):
            old.ask(f"{topic} magic {sent}: {one.name}", produce(topic, one.data), (0, 2)[sent])
    for one in good_sets(2):
        old.ask(f"{topic} magic 2: {one.name}", produce(topic, one.data), 6)
    # Append times change how far a wrapper is compressed, and with it where bytes are cut off.
    size = 1 << 20 if kind == "append-time" else 4000
    for version in (0, 1, 2, 3, 4, 10, 11):
        for offset in (0, 1, 50, 101):
            old.ask(f"{topic} read from {offset}", fetch(topic, offset, partition_max_bytes=size), version)
    old.check()


@pytest.mark.parametrize("magic", FORMATS)
def test_list_offsets(old: Pair, magic: int) -> None:
    """v0 has no times to search by: UNSUPPORTED_FOR_MESSAGE_FORMAT from some versions on, "none" before."""
    topic = f"offsets-v{magic}"
    old.create(topic, message_format_version=FORMATS[magic])
    rng = random.Random(4)
    for number in range(10):
        codec = rng.choice((Codec.NONE, Codec.GZIP, Codec.LZ4))
        made = [Record(i, T + rng.choice((number, 5)) * 1000 + i, 0, b"k", b"v", ()) for i in range(rng.choice((1, 3)))]
        old.ask(f"{topic} filling {number}", produce(topic, build(made, magic, codec)), (0, 2)[magic])
    for version in range(1, 6):
        for timestamp in (-1, -2, 0, T, T + 4500, T + 5001, T + 9000, T + 10**6):
            old.ask(f"{topic}: at {timestamp}", list_offsets(topic, timestamp), version)
    for timestamp in (-1, -2):
        old.ask(f"{topic}: v0 {timestamp}", list_offsets(topic, timestamp, count=3), 0)
    old.check()


def test_format_raised_and_lowered(old: Pair) -> None:
    """One log with segments and batches of all formats, to fetches of all versions."""
    topic = "mixed"
    old.create(topic, message_format_version=FORMATS[1], segment_bytes=600)
    rng = random.Random(8)
    for step, value in enumerate(("0.10.2", "0.9.0", "0.11.0", "0.10.2", "0.9.0", "2.4")):
        set_format(old, topic, value)
        for magic in (0, 1, 2):
            for codec in (Codec.NONE, Codec.GZIP):
                made = [Record(i, T + step * 1000 + i, 0, b"k", rng.randbytes(20), ()) for i in range(3)]
                old.ask(f"step {step} magic {magic}", produce(topic, build(made, magic, codec)), (0, 2, 6)[magic])
    for now in ("raised", "lowered"):
        for version in (0, 1, 2, 3, 4, 7, 10, 11):
            for offset in (0, 4, 17, 18, 50, 107, 108, 109):
                for size in (1, 300, 1 << 20):
                    old.ask(f"{now} from {offset} up to {size}", fetch(topic, offset, partition_max_bytes=size), version)
        set_format(old, topic, "0.9.0")
    old.check()
