"""Decoding values into Arrow columns: records a second of one core, and the share of the library's own speed. Processor time.

The library's own speed is that of a loop over the same values that only makes its objects: `orjson.loads`,
`fastavro.schemaless_reader`, `msgspec.msgpack.decode`, `FromString`. The columns are made in addition. A record has five fields:
a long, two texts of which one may be null, a double, a Boolean; its JSON has about 85 bytes. `framed` is Avro in Confluent's wire
format, of two schemas, by a registry that answers from memory. `display` makes texts for people.

The target is 1 M records/s or 0.8 of the library.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import msgspec
import orjson
import pyarrow as pa

from tidelog.decoding.decoder import Decoder
from tidelog.decoding.framed import FramedDecoder
from tidelog.decoding.json_values import JsonDecoder
from tidelog.decoding.msgpack_values import MsgpackDecoder
from tidelog.decoding.registry import Schema
from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile, compiled
from tidelog.decoding.schemaful.protobuf_values import ProtobufDecoder
from tidelog.decoding.schemas import make_decoder

RECORDS = 100_000
RUNS = 5
TARGET_M, TARGET_SHARE = 1.0, 0.8

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "country", "type": ["null", "string"], "default": None},
        {"name": "ok", "type": "boolean"},
    ],
}
PROTO = """syntax = "proto3";
message Order { int64 id = 1; string user = 2; double amount = 3; optional string country = 4; bool ok = 5; }"""


class _Memory:
    """Stands for a registry: two schemas, of which the second one is the newest."""

    def __init__(self) -> None:
        newer = {**AVRO, "fields": [*AVRO["fields"], {"name": "channel", "type": "string", "default": "web"}]}  # type: ignore[misc]
        self.schemas = [Schema("AVRO", json.dumps(one)) for one in (AVRO, newer)]

    def by_key(self, key: bytes) -> Schema:
        return self.schemas[key[4]]

    def latest(self, subject: str) -> Schema:
        return self.schemas[1]


def rows() -> list[dict[str, Any]]:
    """Return the records."""
    return [
        {"id": row, "user": f"user{row % 1000}", "amount": row * 0.25, "country": "DE" if row % 3 else None, "ok": row % 2 == 0}
        for row in range(RECORDS)
    ]


def rates(works: Sequence[Callable[[], object]]) -> list[float]:
    """Return the best rate of each work in millions of records per second; they take turns."""
    best = [0.0] * len(works)
    for _ in range(RUNS):
        for index, work in enumerate(works):
            began = time.process_time()
            work()
            best[index] = max(best[index], RECORDS / (time.process_time() - began) / 1e6)
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a target is missed."""
    records = rows()
    schema = fastavro.parse_schema(AVRO)
    descriptor = ProtobufFile(compiled(PROTO)).by_name(None)
    proto = ProtobufDecoder(descriptor)
    message = proto.message_class

    def avro(record: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, record)
        return out.getvalue()

    avros = [avro(record) for record in records]
    framed = [
        b"\0\0\0\0" + bytes([row % 10 == 0]) + value + (b"\6web" if row % 10 == 0 else b"") for row, value in enumerate(avros)
    ]
    memory: Any = _Memory()
    kinds: list[tuple[str, Decoder, list[bytes], Callable[[bytes], object]]] = [
        ("json", JsonDecoder(), [json.dumps(record).encode() for record in records], orjson.loads),
        (
            "avro",
            make_decoder(Schema("AVRO", json.dumps(AVRO)))[0],
            avros,
            lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema, None),
        ),
        (
            "avro, framed",
            FramedDecoder("avro", memory, topic="orders", side="value"),
            framed,
            lambda value: fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None),
        ),
        ("protobuf", proto, [message(**record).SerializeToString() for record in records], message.FromString),
        ("msgpack", MsgpackDecoder(), [msgspec.msgpack.encode(record) for record in records], msgspec.msgpack.decode),
    ]
    print(f"{'format':14}{'columns M/s':>13}{'library M/s':>13}{'share':>8}{'display M/s':>13}")
    missed = False
    for name, decoder, values, alone in kinds:
        column = pa.array(values, pa.binary())
        assert decoder.decode(column).failures == decoder.display(column).failures == 0
        columns, library, display = rates(
            [
                lambda column=column, decoder=decoder: decoder.decode(column),  # type: ignore[misc]
                lambda values=values, alone=alone: [alone(value) for value in values],  # type: ignore[misc]
                lambda column=column, decoder=decoder: decoder.display(column),  # type: ignore[misc]
            ]
        )
        share = columns / library
        missed |= columns < TARGET_M and share < TARGET_SHARE
        print(f"{name:14}{columns:13.2f}{library:13.2f}{share:8.2f}{display:13.2f}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
