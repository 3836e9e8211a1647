"""Produce, when a request is the last one of its connection again, but for the correlation id and the records.

A producer's requests to one partition differ in nothing else. So what was read once is compared, not read again, and the answer
is that of the last time with other offsets: that saves a third of a small request's time. What is done to the log is the same as
ever: `produce` does it.

    request    what stays | size of the records | records | tags, all empty, in flexible versions
    answer     what stays | base offset, append time, log start offset | what stays

Anything else goes the usual way, and so does a connection's first request, which is remembered here. Who keeps sending something
else, as a producer to many partitions does, is not remembered any more: that would cost more than it saves.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.broker.api import Outcome
from tidelog.broker.apis.produce import PLAIN, append, is_of_open_transaction, is_usual
from tidelog.storage.partition.appends import TooMuchAtOnceError
from tidelog.wire.headers import response_writer
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.broker.server.connection import Connection
    from tidelog.wire.codec import Bytes

FIRST_VERSION = 5
"""From here on an answer has all three numbers, one behind the other."""

_SIZE = Struct(">i")
_OFFSETS = Struct(">qqq")
_MARKS = (0x7EDCBA9876543210, 0x7ABCDEF012345678, 0x7654321089ABCDEF)
"""Numbers by which their places are found in an answer."""

TRIES = 8
"""So many requests of a connection are remembered in vain."""

MAX_KEPT_BYTES = 1024
"""A longer beginning than names and ids have is not kept."""


class Again:
    """What is known of the requests that a connection repeats."""

    __slots__ = (
        "acks",
        "answer",
        "answer_bytes",
        "begin",
        "begin_bytes",
        "end",
        "is_transactional",
        "key",
        "middle",
        "tags",
        "version",
        "write",
    )

    def __init__(self, version: int, begin: bytes, tags: bytes, message: ProduceRequest) -> None:
        topic = message.topic_data[0]
        self.version = version
        self.begin = begin
        self.begin_bytes = len(begin)
        self.tags = tags
        self.acks = message.acks
        self.is_transactional = message.transactional_id is not None
        self.key = (topic.name, topic.partition_data[0].index)
        self.write = response_writer(ProduceResponse, version)
        marked = PartitionProduceResponse(self.key[1], 0, *_MARKS)
        (frame,) = self.write(_response(self.key[0], marked), 0)
        at = bytes(frame).index(_OFFSETS.pack(*_MARKS))
        self.middle = bytes(frame[8:at])
        self.end = bytes(frame[at + _OFFSETS.size :])
        self.answer = Struct(f">ii{len(self.middle)}sqqq{len(self.end)}s").pack
        self.answer_bytes = len(frame) - 4


def remember(connection: Connection, message: ProduceRequest, data: memoryview, body: int, end: int) -> None:
    """Keep what may be repeated of the request in `data[body:end]`."""
    version = connection.api_version
    connection.again = None
    if connection.again_tries == TRIES:
        return
    connection.again_tries += 1
    topics = message.topic_data
    if version < FIRST_VERSION or len(topics) != 1 or len(topics[0].partition_data) != 1:
        return
    records = topics[0].partition_data[0].records
    if records is None:
        return
    size = len(records)
    is_flexible = version >= ProduceRequest.FIRST_FLEXIBLE
    tags = b"\0\0\0" if is_flexible else b""
    size_bytes = ((size + 1).bit_length() + 6) // 7 if is_flexible else 4
    begin_end = end - len(tags) - size - size_bytes
    if body < begin_end <= body + MAX_KEPT_BYTES and data[end - len(tags) : end] == tags:
        connection.again = Again(version, bytes(data[body:begin_end]), tags, message)


def handle(node: Node, connection: Connection, data: memoryview, body: int, end: int) -> list[Bytes] | Outcome | None:
    """Answer the request in `data[body:end]` if it is the last one again; None if it is not, and nothing was done."""
    again = connection.again
    if again is None or connection.api_version != again.version:
        return None
    position = body + again.begin_bytes
    if position + 5 > end or data[body:position] != again.begin:
        return None
    tags = again.tags
    if tags:
        size = data[position]
        position += 1
        if size > 127:
            size &= 127
            shift = 7
            more = 128
            while more > 127 and shift < 35:
                more = data[position]
                position += 1
                size |= (more & 127) << shift
                shift += 7
        size -= 1
    else:
        (size,) = _SIZE.unpack_from(data, position)
        position += 4
    records_end = position + size
    if size < 0 or records_end + len(tags) != end or data[records_end:end] != tags:
        return None
    connection.again_tries = 0
    records = data[position:records_end]
    key = again.key
    if not is_usual(records, again.version) and not (
        again.is_transactional and is_of_open_transaction(node, key, records, again.version)
    ):
        return None
    try:
        answer = append(node, key, records, PLAIN, again.acks, connection.client_id)
    except TooMuchAtOnceError:
        return None
    if answer.error_code:
        if again.acks == 0:
            return Outcome.CLOSE
        return again.write(_response(key[0], answer), connection.correlation_id)
    if again.acks == 0:
        return Outcome.NOTHING
    if node.flushes.pending:
        response = node.flushes.hold(connection, _response(key[0], answer))
        return response if isinstance(response, Outcome) else again.write(response, connection.correlation_id)
    return [
        again.answer(
            again.answer_bytes,
            connection.correlation_id,
            again.middle,
            answer.base_offset,
            answer.log_append_time_ms,
            answer.log_start_offset,
            again.end,
        )
    ]


def _response(name: str, answer: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse([TopicProduceResponse(name=name, partition_responses=[answer])])
