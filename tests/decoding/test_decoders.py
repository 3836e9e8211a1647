"""What libraries write is read back as columns; random and hostile bytes raise nothing, and shift no other value."""

from __future__ import annotations

import io
import json
from typing import Any
from unittest import mock

import fastavro
import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.decoding.auto import AutoDecoder
from tidelog.decoding.decoder import MAX_VALUE_BYTES, SLICE_ROWS, Decoder
from tidelog.decoding.json_values import JsonDecoder
from tidelog.decoding.msgpack_values import MsgpackDecoder
from tidelog.decoding.plain import HexDecoder, Utf8Decoder
from tidelog.decoding.prefixed import PrefixedDecoder
from tidelog.decoding.registry import Schema
from tidelog.decoding.schemaful import protobuf_rows
from tidelog.decoding.schemaful.avro_schema import AvroSchema
from tidelog.decoding.schemaful.avro_values import AvroDecoder
from tidelog.decoding.schemaful.json_schema import json_schema_type
from tidelog.decoding.schemaful.protobuf_schema import ProtobufFile, compiled
from tidelog.decoding.schemaful.protobuf_values import ProtobufDecoder
from tidelog.decoding.schemas import make_decoder
from tidelog.errors import InvalidArgumentError

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
        {
            "name": "lines",
            "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}},
        },
        {"name": "tags", "type": {"type": "map", "values": "boolean"}},
        {"name": "raw", "type": "bytes"},
    ],
}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}]}
PROTO = """syntax = "proto3";
message Order { int64 id = 1; optional string note = 2; repeated Line lines = 3; map<string, bool> tags = 4; bytes raw = 5;
  message Line { sint32 n = 1; } Order parent = 6; repeated Empty empties = 7; }
message Empty {}"""

ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "note": st.none() | st.text(),
        "price": st.floats(allow_nan=False),
        "lines": st.lists(st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1)}), max_size=4),
        "tags": st.dictionaries(st.text(), st.booleans(), max_size=3),
        "raw": st.binary(max_size=20),
    }
)


@pytest.fixture(scope="module")
def proto() -> ProtobufDecoder:
    return ProtobufDecoder(ProtobufFile(compiled(PROTO)).by_name("Order"))


def avro(schema: Any, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def with_pairs(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "tags": list(order["tags"].items())}


@given(st.lists(st.none() | ORDERS | st.binary(max_size=30), max_size=12))
def test_avro_is_read_back(values: list[Any]) -> None:
    """Orders among other bytes: each is decoded as alone."""
    decoder = AvroDecoder(AvroSchema(json.dumps(ORDER)))
    data = [avro(ORDER, one) if isinstance(one, dict) else one for one in values]
    decoded = decoder.decode(column(*data))
    decoded.column.validate(full=True)
    for value, raw, found, undecoded in zip(values, data, decoded.column.to_pylist(), decoded.undecoded.to_pylist(), strict=True):
        if isinstance(value, dict):
            assert (found, undecoded) == (with_pairs(value), None)
        else:
            alone = decoder.decode(column(raw))
            assert ([found], [undecoded]) == (alone.column.to_pylist(), alone.undecoded.to_pylist())
            assert found is None or undecoded is None
    shown = decoder.display(column(*data))
    assert shown.undecoded.equals(decoded.undecoded)
    assert all(text is None or isinstance(json.loads(text), dict) for text in shown.column.to_pylist())


@given(st.lists(ORDERS, min_size=1, max_size=8))
def test_protobuf_is_read_back(proto: ProtobufDecoder, values: list[dict[str, Any]]) -> None:
    kept = [{name: one for name, one in value.items() if name != "price" and one is not None} for value in values]
    decoded = proto.decode(column(*(proto.message_class(**one).SerializeToString() for one in kept)))
    rows = [{**row, "tags": dict(row["tags"])} for row in decoded.column.to_pylist()]
    assert rows == [{"note": None, "parent": None, "empties": [], **one} for one in kept]


@given(
    st.lists(
        st.none() | st.binary(max_size=4) | ORDERS.map(lambda one: one["raw"]) | st.sampled_from([b"", b"\x08\x01", b"\x78\x01"])
    )
)
def test_protobuf_messages_together_and_alone(values: list[bytes | None]) -> None:
    """Parsed in one call or one by one: the same values, failures, and unknown fields (b"\\x78\\x01" is one)."""
    file = ProtobufFile(compiled(PROTO))
    together, alone = (ProtobufDecoder(file.by_name("Order")) for _ in range(2))
    one = together.decode(column(*values))
    with mock.patch.object(protobuf_rows, "MAX_BYTES", -1):
        assert alone.decode(column(*values)) == one
    assert alone.notices() == together.notices()


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(JSONS, max_size=10))
def test_json_and_msgpack_of_any_shape(values: list[Any]) -> None:
    """With a type that is inferred, each value is decoded, and a text is the value again."""
    for decoder, data in (
        (JsonDecoder(), [json.dumps(one, indent=1).encode() for one in values]),
        (MsgpackDecoder(), [msgpack.packb(clipped(one)) for one in values]),
    ):
        decoded = decoder.decode(column(*data))
        decoded.column.validate(full=True)
        assert decoded.failures == 0
        assert decoder.notices() == []
    shown = JsonDecoder().display(column(*(json.dumps(one).encode() for one in values)))
    assert [json.loads(text) for text in shown.column.to_pylist()] == values


def clipped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: clipped(one) for name, one in value.items()}
    if isinstance(value, list):
        return [clipped(one) for one in value]
    return max(-(2**63), min(value, 2**64 - 1)) if isinstance(value, int) else value


@settings(max_examples=200)
@given(st.lists(st.none() | st.binary(max_size=60) | st.text(max_size=20).map(str.encode), max_size=12))
def test_random_bytes_raise_nothing(proto: ProtobufDecoder, values: list[bytes | None]) -> None:
    decoders: list[Decoder] = [
        Utf8Decoder(),
        HexDecoder(),
        JsonDecoder(),
        MsgpackDecoder(),
        AutoDecoder(None, "orders", "value"),
        AvroDecoder(AvroSchema(json.dumps(ORDER))),
        AvroDecoder(AvroSchema(json.dumps(NODE))),
        AvroDecoder(AvroSchema(json.dumps(["int", "string", ORDER]))),
        proto,
        PrefixedDecoder(AvroDecoder(AvroSchema('"int"'))),
    ]
    for decoder in decoders:
        for found in (decoder.decode(column(*values)), decoder.display(column(*values))):
            found.column.validate(full=True)
            for value, one, undecoded in zip(
                values, found.column.is_valid().to_pylist(), found.undecoded.to_pylist(), strict=True
            ):
                assert undecoded in (None, value)
                assert not (one and undecoded is not None)
                if value is None:
                    assert not one


@pytest.mark.parametrize(
    ("decoder", "value"),
    [
        (JsonDecoder(), b"[" * 1_000_000),
        (JsonDecoder(), b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
        (MsgpackDecoder(), b"\xdd\x00\xff\xff\xff" * 100_000),
        (MsgpackDecoder(), b"\x91" * 1_000_000),
        (AvroDecoder(AvroSchema(json.dumps(NODE))), b"\x02" * 1_000_000 + b"\0"),
        (AvroDecoder(AvroSchema('{"type":"array","items":"int"}')), b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x02"),
        (AvroDecoder(AvroSchema('"string"')), b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        (Utf8Decoder(), b"\xff" * 1_000_000),
    ],
)
def test_hostile_values_are_not_decoded(decoder: Decoder, value: bytes) -> None:
    assert decoder.display(column(value)).failures == 1
    assert decoder.decode(column(value)).failures == 1


def test_hostile_messages(proto: ProtobufDecoder) -> None:
    empties = b"\x3a\x00" * 5_000_000
    nested = b""
    for _ in range(150):
        nested = b"\x32" + varint(len(nested)) + nested
    decoded = proto.decode(column(empties, nested, proto.message_class(id=1).SerializeToString()))
    assert [one is not None for one in decoded.column.to_pylist()] == [False, False, True]


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_large_values_are_not_decoded() -> None:
    value = b'"' + b"a" * MAX_VALUE_BYTES + b'"'
    decoded = JsonDecoder().decode(column(b'"b"', value))
    assert decoded.column.to_pylist() == ["b", None]
    assert decoded.failures == 1


DEEP = '{"type":"array","items":' * 80 + '"int"' + "}" * 80
DOUBLING = '"int"'
for _level in range(40):
    _again = f'"B{_level - 1}"' if _level else '"int"'
    DOUBLING = (
        f'{{"type":"record","name":"B{_level}","fields":[{{"name":"a","type":{DOUBLING}}},{{"name":"b","type":{_again}}}]}}'
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not an Avro schema"),
        ("[" * 100_000, "not an Avro schema"),
        (DEEP, "nested too deeply"),
        (DOUBLING, "more than 20,000 fields"),
        ('{"type":"array","items":"null"}', "0 bytes of the type array may expand"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"B"}]}', "not an Avro schema: B"),
    ],
)
def test_hostile_avro_schemas(text: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        AvroSchema(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message A {", "not a Protobuf schema"),
        ('syntax = "proto3"; import "nowhere.proto";', "nowhere.proto: File not found"),
        ('syntax = "proto3"; message A { B b = 1; }', '"B" is not defined'),
    ],
)
def test_wrong_protobuf_schemas(text: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        compiled(text)


def test_a_reference_stays_in_its_folder() -> None:
    with pytest.raises(InvalidArgumentError, match="leaves its folder"):
        compiled('syntax = "proto3";', [("../evil.proto", "")])


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": ["null", "integer"]}, pa.int64()),
        ({"anyOf": [{"type": "null"}, {"type": "number"}]}, pa.float64()),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, pa.string()),
        ({"type": "array", "items": {"type": "boolean"}}, pa.list_(pa.bool_())),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "integer"}}}, pa.struct([("a", pa.int64())])),
        ({"properties": {"a": {"$ref": "#"}}}, pa.struct([("a", pa.string())])),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, pa.struct([("a", pa.string())])),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.string()),
        ({}, pa.string()),
    ],
)
def test_types_of_json_schemas(schema: dict[str, Any], kind: pa.DataType) -> None:
    assert json_schema_type(json.dumps(schema), [("other.json", '{"x":{"type":"string"}}')]) == kind


def test_fields_that_come_later_are_noticed() -> None:
    decoder = JsonDecoder()
    decoder.learn(column(b'{"a":1,"b":[{"c":1}]}'))
    found = decoder.decode(column(b'{"a":2,"new":1,"b":[{"d":1}]}', b'{"a":"text"}', b'{"a":1.5}', b'{"b":"text"}', b"7"))
    assert found.column.to_pylist() == [{"a": 2, "b": [{"c": None}]}, None, None, None, None]
    assert found.failures == 4
    assert decoder.notices() == ["fields that the columns lack were left out: b.d, new"]


def test_text_stands_for_what_varies() -> None:
    decoder = JsonDecoder()
    values = column(b'{"a":1,"n":null}', b'{"a":"x","n":null}')
    assert decoder.decode(values).column.to_pylist() == [{"a": "1", "n": None}, {"a": "x", "n": None}]
    assert decoder.decode(column(b'{"n":{"b":1}}')).column.to_pylist() == [{"a": None, "n": '{"b":1}'}]


@pytest.mark.parametrize("failing", [0, SLICE_ROWS - 1, SLICE_ROWS, SLICE_ROWS + 5])
def test_a_failure_in_each_slice(failing: int) -> None:
    values = [b"%d" % row for row in range(SLICE_ROWS + 6)]
    values[failing] = b"{"
    decoded = JsonDecoder().decode(column(*values))
    expected: list[int | None] = [*range(SLICE_ROWS + 6)]
    expected[failing] = None
    assert decoded.column.to_pylist() == expected
    assert decoded.undecoded[failing].as_py() == b"{" and decoded.failures == 1


NEWER = {**ORDER, "fields": [*ORDER["fields"][:1], *ORDER["fields"][2:], {"name": "channel", "type": "string", "default": "web"}]}
WIDER = {**ORDER, "fields": [{"name": "id", "type": "double"}, {"name": "is", "type": "boolean", "default": True}]}


@pytest.mark.parametrize("reader", [NEWER, WIDER])
@given(values=st.lists(st.none() | ORDERS | st.just(b"\x01"), max_size=5))
def test_avro_as_another_schema(reader: dict[str, Any], values: list[Any]) -> None:
    """As fastavro resolves the schemas."""
    data = [avro(ORDER, one) if isinstance(one, dict) else one for one in values]
    written, wanted = (Schema("AVRO", json.dumps(one)) for one in (ORDER, reader))
    decoded = make_decoder(written, (), wanted)[0].decode(column(*data))
    for value, raw, row in zip(values, data, decoded.column.to_pylist(), strict=True):
        expected = None
        if isinstance(value, dict):
            expected = fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(ORDER), fastavro.parse_schema(reader))
        assert row == (with_pairs(expected) if expected and "tags" in expected else expected)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([b'{"a":1}', b"[2]"], "json"),
        ([b"12", b"text"], "utf8"),
        ([msgpack.packb({"a": 1})], "msgpack"),
        ([b"\0\0\0\0\1", b"\xff"], "auto"),
        ([b"text", b"\0"], "auto"),
        ([None], "auto"),
    ],
)
def test_what_auto_guesses(values: list[bytes | None], name: str) -> None:
    decoder = AutoDecoder(None, "orders", "value")
    shown = decoder.display(column(*values))
    assert (decoder.name, shown.failures) == (name, 0)
    assert decoder.decode(column(*values)).undecoded.null_count == len(values)


def test_a_prefix_without_a_registry() -> None:
    schema = AvroSchema(json.dumps(ORDER))
    order = {"id": 1, "note": None, "price": 0.5, "lines": [], "tags": {}, "raw": b""}
    values = [b"\0\0\0\0\7" + avro(ORDER, order), None, b"\0\0\0\0\7broken"]
    decoded = PrefixedDecoder(AvroDecoder(schema)).decode(column(*values))
    assert decoded.column.to_pylist() == [with_pairs(order), None, None]
    assert decoded.undecoded.to_pylist() == [None, None, values[2]]


def test_a_damaged_msgpack_value_does_not_affect_the_next() -> None:
    good = [msgpack.packb({"a": number}) for number in range(3)]
    bad = [b"\x82", good[0] + b"\x01", good[0][:-1], b"", b"\xdd\xff\xff\xff\xff", b"\xc4\x20", b"\xc1"]
    for damaged in bad:
        for values in ([good[0], damaged, good[1], good[2]], [damaged, good[0]], [good[0], damaged]):
            decoder = MsgpackDecoder(pa.struct([("a", pa.int64())]))
            found = decoder.decode(pa.array(values, pa.binary()))
            assert found.undecoded.to_pylist() == [value if value is damaged else None for value in values], damaged
            assert found.column.to_pylist() == [None if value is damaged else msgpack.unpackb(value) for value in values]
