"""A plan reads and writes the same bytes as `codec`, or nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.errors import ProtocolError
from tidelog.records.kernel import COMPILED
from tidelog.wire.codec import decoder, encode
from tidelog.wire.fields import Message, Struct
from tidelog.wire.headers import response_chunks
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tidelog.wire.usual_messages import is_null_only, plan_of

USUAL = [api for api in APIS if api.answer_usual is not None]
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}

pytestmark = pytest.mark.skipif(not COMPILED, reason="interpreted, there are no plans")


def drawn(cls: type[Struct], version: int, draw: random.Random) -> Any:
    """A message with what its version has."""
    values = {}
    for field in cls.FIELDS:
        if field.tag is not None or version not in field.versions:
            continue
        # Plans leave null records.
        may_be_null = version in field.nullable and field.kind != "records"
        is_flexible = version >= getattr(cls, "FIRST_FLEXIBLE", 0)
        if is_null_only(field, version, is_flexible=is_flexible) or (may_be_null and draw.random() < 0.2):
            values[field.name] = None
        elif field.kind in NUMBERS:
            values[field.name] = draw.choice(
                [0, -1, draw.randrange(100), 2 ** NUMBERS[field.kind] - 1, -(2 ** NUMBERS[field.kind])]
            )
        elif field.kind == "boolean":
            values[field.name] = draw.random() < 0.5
        elif field.kind == "string":
            values[field.name] = draw.choice(["", "t", "größe", "x" * 126, "x" * 127, "x" * 128, "ß" * 9000])
        elif field.kind == "records":
            values[field.name] = bytes(draw.choice([0, 1, 126, 127, 300, 70_000]))
        elif isinstance(field.of, type):
            values[field.name] = [drawn(field.of, version, draw) for _ in range(draw.choice([0, 1, 1, 2, 5]))]
        else:
            values[field.name] = [draw.randrange(-5, 2**31) for _ in range(draw.choice([0, 1, 3]))]
    return cls(**values)


def row_of(message: Any) -> Any:
    """The fields of a message as a plan has them."""
    if isinstance(message, list):
        return [row_of(one) for one in message]
    if isinstance(message, Struct):
        return [row_of(getattr(message, field.name)) for field in message.FIELDS if field.tag is None]
    return bytes(message) if isinstance(message, memoryview) else message


def unfolded(row: Any) -> Any:
    """A plan's row with bytes for views of them, and lists for the empty arrays that a version lacks."""
    if isinstance(row, list | tuple):
        return [unfolded(one) for one in row]
    return bytes(row) if isinstance(row, memoryview) else row


@examples(300)
@given(st.integers(0, 2**32))
def test_requests_are_read_as_the_codec_reads_them(seed: int) -> None:
    draw = random.Random(seed)
    api = draw.choice(USUAL)
    version = draw.randint(*api.served)
    sent = bytearray(b"".join(encode(drawn(api.request, version, draw), version)))
    is_whole = draw.random() < 0.6
    for _ in range(0 if is_whole else draw.choice([1, 1, 3])):
        if sent:
            sent[draw.randrange(min(len(sent), 80))] = draw.choice([0, 1, 2, 127, 128, 255, draw.randrange(256)])
    before, after = bytes(draw.choice([0, 13])), bytes(draw.choice([0, 0, 5]))
    end = len(before) + len(sent) - (0 if is_whole else draw.choice([0, 0, 1, 20]))
    data, end = memoryview(bytearray(before + sent + after)), max(end, len(before))
    plan = plan_of(api.request, version)
    assert plan is not None
    row = plan.read(data, len(before), end, 10_000)
    try:
        message: Message | None = decoder(api.request, version, exact=False)(data, len(before), end)
    except ProtocolError:
        message = None
    if row is not None:
        assert message is not None and unfolded(row) == row_of(message)
    assert row is not None or not is_whole


@examples(150)
@given(st.integers(0, 2**32))
def test_responses_are_written_as_the_codec_writes_them(seed: int) -> None:
    draw = random.Random(seed)
    api = draw.choice(USUAL)
    version = draw.randint(*api.served)
    message = drawn(api.response, version, draw)
    plan = plan_of(api.response, version)
    if plan is None:
        assert api.request.API_NAME == "ListOffsets" and version == 0  # It has an array of int64.
        return
    for correlation_id in (5, -1):  # The second time with what the first left.
        assert plan.write(row_of(message), correlation_id) == b"".join(response_chunks(message, version, correlation_id))


def test_more_elements_than_expected_are_left() -> None:
    api = next(api for api in USUAL if api.request.API_NAME == "ListOffsets")
    plan = plan_of(api.request, 7)
    assert plan is not None
    data = memoryview(b"".join(encode(drawn(api.request, 7, random.Random(4)), 7)))
    assert plan.read(data, 0, len(data), 10_000) and plan.read(data, 0, len(data), 0) is None


def test_what_is_usual_only_as_a_null() -> None:
    plan = plan_of(ConsumerGroupHeartbeatRequest, 1)
    assert plan is not None
    idle = ConsumerGroupHeartbeatRequest("g", "m", 3)
    said = b"".join(encode(idle, 1))
    assert plan.read(memoryview(said), 0, len(said), 10) == ["g", "m", 3, None, None, -1, None, None, None, None]
    for end in range(len(said)):
        assert plan.read(memoryview(said), 0, end, 10) is None
    idle.subscribed_topic_names = ["t"]
    named = b"".join(encode(idle, 1))
    assert plan.read(memoryview(named), 0, len(named), 10) is None
    answer = plan_of(ConsumerGroupHeartbeatResponse, 1)
    assert answer is not None
    with pytest.raises(ValueError, match="null"):
        answer.write([0, 0, None, "m", 3, 5000, [[]]], 1)
