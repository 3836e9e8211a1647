"""Kilobytes that say they are gigabytes: what they cost is bounded, and other clients keep their service meanwhile."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.produce_helpers import LATEST, NOW_MS, answer, message_set, produce_request
from tests.broker.raw import RawClient
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import encode_message
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
BOMBS = 3


def batch_of_zeros(size: int) -> bytes:
    return bytes(build_batch_v2([Record(0, NOW_MS, CREATE_TIME, None, bytes(size))], codec=Codec.ZSTD))


def wrapper_of(count: int, magic: int = 1) -> bytes:
    """A compressed message that holds the same empty message over and over."""
    message = bytearray(encode_message(magic, 0, NOW_MS, None, None))
    struct.pack_into(">I", message, 12, zlib.crc32(bytes(message[16:])))
    inside = bytes(compress(Codec.GZIP, bytes(message) * count))
    return bytes(encode_message(magic, 0, NOW_MS, None, inside, codec=Codec.GZIP))


@pytest.mark.parametrize(
    ("bomb", "version", "code"),
    [
        pytest.param(lambda: batch_of_zeros(110_000_000), LATEST, TOO_LARGE, id="a record of 110 MB"),
        pytest.param(lambda: wrapper_of(1_000_000), 2, TOO_LARGE, id="a million messages in format v1"),
        pytest.param(lambda: wrapper_of(50_000), 2, 0, id="messages that fit"),
    ],
)
def test_others_are_served_and_memory_is_bounded(
    broker: RunningBroker, client: RawClient, bomb: Callable[[], bytes], version: int, code: int
) -> None:
    """Somebody sends bombs as fast as they are answered; somebody else asks again and again."""
    broker.create_topic("t")
    data = bomb()
    assert len(data) < 200_000
    status = Path("/proc/self/status")

    def memory(name: str) -> int:
        (line,) = [line for line in status.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) << 10

    Path("/proc/self/clear_refs").write_text("5")  # the highest mark of memory starts over
    before = memory("VmRSS")
    waits: list[float] = []
    with broker.client() as bomber:
        for _ in range(BOMBS):
            bomber.send(produce_request(data), version)
        for _ in range(BOMBS):
            asked = process_time()
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
            assert answer(client.ask(produce_request(message_set(2)), LATEST)).error_code == 0
            waits.append(process_time() - asked)
        assert [answer(bomber.receive()).error_code for _ in range(BOMBS)] == [code] * BOMBS
    assert max(waits) < 10, "seconds of processor time: what a request waits for"
    assert memory("VmHWM") - before < 400_000_000
