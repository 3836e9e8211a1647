"""One request of Kafka's protocol, by hand: batches handed to a broker exactly as they are.

Client libraries build their batches themselves; a broker that is to judge ours must get ours. Produce version 7 is the newest
one before the compact encodings, and the first that may carry zstd.

    request   size int32, api_key int16 = 0, api_version int16 = 7, correlation_id int32, client_id string,
              transactional_id string (null), acks int16, timeout_ms int32,
              1 topic: name string, 1 partition: index int32, records bytes
    response  size int32, correlation_id int32,
              1 topic: name string, 1 partition: index int32, error_code int16, base_offset int64, ...
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_PRODUCE, _VERSION, _CORRELATION_ID = 0, 7, 1
_TIMEOUT_S = 60


class Produced(NamedTuple):
    """A broker's verdict on a batch: Kafka's error code (0: taken) and the offset that its first record got."""

    error_code: int
    base_offset: int


def produce_batch(port: int, topic: str, partition: int, batch: bytes) -> Produced:
    """Hand one batch to the broker at 127.0.0.1:`port` and return its verdict."""
    request = struct.pack(">hhi", _PRODUCE, _VERSION, _CORRELATION_ID) + _string("tests")
    request += struct.pack(">hhi", -1, -1, _TIMEOUT_S * 1000)
    request += struct.pack(">i", 1) + _string(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    correlation_id, topics, name_length = struct.unpack_from(">iih", answer)
    assert (correlation_id, topics, name_length) == (_CORRELATION_ID, 1, len(topic))
    _partitions, _index, error_code, base_offset = struct.unpack_from(">iihq", answer, 10 + name_length)
    return Produced(error_code, base_offset)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
