"""Generates the Python source of a function that decodes one version of one message.

One `unpack_from` reads neighbouring fields of fixed size; the first byte of a compact length or of the number of tagged fields is
read like such a field. Structs are decoded inline, without calls. `iter_unpack` reads arrays of fixed-size elements. The source
of Produce v3 begins::

    def decode(buf, pos=0, end=None, room=1048576):
        ...
        n1, = U0(buf, pos)
        pos += 2

`buf` is first cut to `end`. Truncated input then raises struct.error or IndexError, which becomes a ProtocolError with its
position. Lengths and counts are compared with the remaining bytes before anything is allocated. `room` is the number of elements
that a request may have. Tagged fields count as elements, and long strings as one for every 128 bytes. A request with more
elements raises TooManyElementsError. A caller that must not take long passes a small `room` first.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache
from typing import Any, NoReturn

from tidelog.errors import ProtocolError, TooManyElementsError
from tidelog.wire.fields import ZERO_UUID, Bytes, Field, Message, Struct

FIXED = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid16": "16s",
}
"""The `struct` format of each fixed-size kind."""

MAX_STRING_BYTES = 0x7FFF

BITS_OF_A_PIECE = 7
"""Every 2^7 bytes of a long string count as one element, because replacing an invalid byte takes a dozen nanoseconds."""

MAX_ELEMENTS = 1 << 20
"""The maximum number of elements of a request, in all arrays together, including tagged fields and parts of long strings.

An element of three bytes may take 120 bytes of memory, so a hundred megabytes of them would take gigabytes. Requests of real
clients are far below the limit. Responses have no limit: a client chooses its brokers, and large clusters have many partitions.
"""

MAX_ELEMENTS_OF = dict.fromkeys((4, 5, 6), 1 << 23)
"""The limits of LeaderAndIsr, StopReplica and UpdateMetadata, which list all partitions, with seven elements or more for each."""

ELEMENTS_AT_ONCE = 4096
"""The most numbers that one call reads. No other thread runs during the call."""


def kind_of(of: Any) -> str:
    """Return the kind of an array's elements."""
    return "struct" if isinstance(of, type) else str(of.__name__)


def present(cls: type[Struct], version: int) -> list[Field]:
    """Return the fields that a version has, except for tagged ones."""
    return [field for field in cls.FIELDS if version in field.versions and field.tag is None]


def tagged(cls: type[Struct], version: int) -> list[Field]:
    """Return the tagged fields that a version has, by tag."""
    fields = [field for field in cls.FIELDS if version in field.versions and field.tag is not None]
    return sorted(fields, key=lambda field: field.tag or 0)


def fixed_format(cls: type[Struct], version: int, *, flexible: bool) -> str | None:
    """Return a struct's format, including the count of tagged fields, if all fields have fixed sizes; otherwise return None."""
    codes = [FIXED.get(field.kind) for field in present(cls, version)]
    return None if None in codes else ">" + "".join(code for code in codes if code) + ("B" if flexible else "")


def smallest(kind: str, of: Any, version: int, *, flexible: bool) -> int:
    """Return the minimum size of a value in bytes."""
    if kind in FIXED:
        return struct.calcsize(">" + FIXED[kind])
    if kind == "struct":
        fields = (smallest(field.kind, field.of, version, flexible=flexible) for field in present(of, version))
        return max(1, sum(fields) + flexible)
    return 1 if flexible else 2 if kind == "string" else 4


class DecoderSource:
    """The generated lines and the names that they use."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.lines: list[str] = []
        self.depth = 2
        self.run: list[tuple[str, str]] = []
        self.count = 0
        self.where = cls.__name__
        self.is_request = cls.__name__.endswith("Request")
        name = f"{cls.__name__} v{version}"

        self.most = most = MAX_ELEMENTS_OF.get(getattr(cls, "API_KEY", -1), MAX_ELEMENTS)

        def fail(what: str, position: int) -> NoReturn:
            raise ProtocolError(f"{name}: {what}", position=position) from None

        def too_many(position: int) -> NoReturn:
            raise TooManyElementsError(f"{name}: the request has more than {most} elements", position=position) from None

        self.names: dict[str, Any] = {
            "fail": fail,
            "too_many": too_many,
            "new": object.__new__,
            "varint": read_varint,
            "varint_rest": _varint_rest,
            "past_tagged_fields": _past_tagged_fields,
            "uuid_of": _uuid_of,
            "unpack": struct.unpack_from,
            "unpacked": _unpacked,
            "UNREADABLE": (struct.error, IndexError),
            "ZERO_UUID": ZERO_UUID,
        }

    def source(self, *, exact: bool = True) -> str:
        """Return the Python source of the function `decode(buf, pos=0, end=None, room=MAX_ELEMENTS)`.

        With `exact`, trailing bytes are an error.
        """
        self._struct(self.cls, "message")
        head = [
            f"def decode(buf, pos=0, end=None, room={self.most}):",
            "    if end is None:",
            "        end = len(buf)",
            "    elif end < len(buf):",
            "        buf = memoryview(buf)[:end]",
            "    try:",
        ]
        foot = [
            "    except UNREADABLE:",
            "        fail('the frame ends within the message', pos)",
        ]
        if exact:
            foot += ["    if pos != end:", "        fail('bytes follow the message', pos)"]
        foot.append("    return message")
        return "\n".join(head + self.lines + foot) + "\n"

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _name(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _const(self, stem: str, value: Any) -> str:
        name = self._name(stem)
        self.names[name] = value
        return name

    def _fixed(self, code: str) -> str:
        name = self._name()
        self.run.append((code, name))
        return name

    def _flush(self) -> None:
        """Emit the code that reads the pending fixed-size fields."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(name for _, name in self.run)
        size = struct.calcsize(">" + codes)
        if codes == "B":
            self._line(f"{targets} = buf[pos]")
        else:
            unpack = self._const("U", struct.Struct(">" + codes).unpack_from)
            self._line(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buf, pos)")
        self._line(f"pos += {size}")
        self.run.clear()

    def _struct(self, cls: type[Struct], target: str) -> None:
        """Emit the code that decodes a struct into the variable `target`."""
        where, self.where = self.where, cls.__name__
        values = {field.name: self._value(field.kind, field.of, field) for field in present(cls, self.version)}
        if self.flexible:
            values.update(self._tagged_fields(cls))
        self._flush()
        self._make(cls, target, values)
        self.where = where

    def _make(self, cls: type[Struct], target: str, values: dict[str, str]) -> None:
        self._line(f"{target} = new({self._const('C', cls)})")
        for field in cls.FIELDS:
            value = values.get(field.name)
            if value is None:
                value = self._default(field)
            self._line(f"{target}.{field.name} = {value}")

    def _default(self, field: Field) -> str:
        """Emit the code that a field's default needs, and return an expression for the default."""
        if field.kind == "array":
            return "None" if field.default is None else "[]"
        if field.kind == "struct" and field.default is not None:
            target = self._name("o")
            self._make(field.of, target, {})
            return target
        if field.kind == "uuid16":
            return "ZERO_UUID"
        return repr(field.default)

    def _value(self, kind: str, of: Any, field: Field) -> str:
        """Emit the code that decodes a value. Return an expression for the value, which is valid after the next flush."""
        if kind == "uuid16":
            return f"uuid_of({self._fixed(FIXED[kind])})"
        if kind in FIXED:
            return self._fixed(FIXED[kind])
        if kind == "struct":
            is_nullable = self.version in field.nullable and field.kind == kind
            sign = self._fixed("b") if is_nullable else ""
            self._flush()
            target = self._name("o")
            if is_nullable:
                # A byte before the struct says whether it is present. For null, Kafka writes 0 in a tagged field, otherwise -1.
                self._line(f"{target} = None")
                self._line(f"if {sign} >= {0 if field.tag is None else 1}:")
                self.depth += 1
            self._struct(of, target)
            self.depth -= is_nullable
            return target
        return self._after_length(kind, of, field)

    def _after_length(self, kind: str, of: Any, field: Field) -> str:
        """Emit the code that decodes a value that follows its length or count and may be null."""
        target = self._name()
        length = self._fixed("B" if self.flexible else "h" if kind == "string" else "i")
        self._flush()
        if self.flexible:
            self._line(f"if {length} > 127:")
            self._line(f"    {length}, pos = varint_rest(buf, pos, {length})")
            if kind == "string":
                self._line(f"    if {length} > {MAX_STRING_BYTES + 1}:")
                self._line(f"        fail('{self.where}.{field.name} is too long', pos)")
            self._line(f"{length} -= 1")
        # As in Kafka, any negative length means null. Elements of arrays are never null.
        self._line(f"if {length} < 0:")
        nullable = self.version in field.nullable and field.kind == kind
        what = f"{self.where}.{field.name}"
        self._line(f"    {target} = None" if nullable else f"    fail('{what} is null', pos)")
        self._line("else:")
        self.depth += 1
        if kind == "array":
            self._elements(target, length, of, field)
        else:
            stop = self._name("stop")
            self._line(f"{stop} = pos + {length}")
            self._line(f"if {stop} > end:")
            self._line(f"    fail('{what} is longer than the rest of the frame', pos)")
            span = f"buf[pos:{stop}]"
            read = {
                "string": f"str({span}, 'utf-8', 'replace')",
                "data": f"bytes({span})",
                "records": f"memoryview(buf)[pos:{stop}]",
            }
            self._line(f"{target} = {read[kind]}")
            self._line(f"pos = {stop}")
            if kind == "string" and self.is_request:
                self._long_string(target, length, what)
        self.depth -= 1
        return target

    def _long_string(self, target: str, length: str, what: str) -> None:
        """Emit the code that counts a long string's elements, and rejects a string that is too long for any response."""
        self._line(f"if {length} > 127:")
        self.depth += 1
        self._spend(f"{length} >> {BITS_OF_A_PIECE}")
        self._line(f"if {length} > {MAX_STRING_BYTES // 3} and len({target}.encode()) > {MAX_STRING_BYTES}:")
        self._line(f"    fail('{what} is too long after invalid UTF-8 is replaced', pos)")
        self.depth -= 1

    def _elements(self, target: str, count: str, of: Any, field: Field) -> None:
        kind = kind_of(of)
        least = smallest(kind, of, self.version, flexible=self.flexible)
        bulk = kind in FIXED and kind != "uuid16"
        if bulk or (kind == "struct" and fixed_format(of, self.version, flexible=self.flexible) is not None):
            # Other elements are read one by one, which fails at the frame's end.
            self._line(f"if {count} > (end - pos) // {least}:")
            self._line(f"    fail('{self.where}.{field.name} has more elements than the rest of the frame can hold', pos)")
        self._spend(count)
        if bulk:
            self._line(f"if {count} > {ELEMENTS_AT_ONCE}:")
            self._line(f"    {target} = unpacked('{FIXED[kind]}', {least}, {count}, buf, pos)")
            self._line("else:")
            self._line(f"    {target} = list(unpack('>%d{FIXED[kind]}' % {count}, buf, pos))")
            self._line(f"pos += {count} * {least}")
            return
        self._line(f"{target} = []")
        add = self._name("add")
        self._line(f"{add} = {target}.append")
        if kind == "struct" and fixed_format(of, self.version, flexible=self.flexible) is not None:
            self._fixed_structs(target, add, count, of)
            if not self.flexible:
                return
            count = f"{count} - len({target})"
        self._line(f"for _ in range({count}):")
        self.depth += 1
        element = self._name("o")
        if kind == "struct":
            self._struct(of, element)
        else:
            value = self._value(kind, None, field)
            self._flush()
            self._line(f"{element} = {value}")
        self._line(f"{add}({element})")
        self.depth -= 1

    def _fixed_structs(self, target: str, add: str, count: str, of: type[Struct]) -> None:
        """Emit the code that decodes fixed-size structs; in a flexible version, up to the first struct with tagged fields."""
        layout = struct.Struct(fixed_format(of, self.version, flexible=self.flexible) or "")
        names = {field.name: self._name() for field in present(of, self.version)}
        tags = self._name("t")
        variables = ", ".join([*names.values(), *([tags] if self.flexible else [])])
        self._line(f"for {variables}, in {self._const('I', layout.iter_unpack)}(buf[pos:pos + {count} * {layout.size}]):")
        self.depth += 1
        if self.flexible:
            self._line(f"if {tags}:")
            self._line("    break")
        element = self._name("o")
        uuids = {field.name for field in of.FIELDS if field.kind == "uuid16"}
        self._make(of, element, {name: f"uuid_of({value})" if name in uuids else value for name, value in names.items()})
        self._line(f"{add}({element})")
        self.depth -= 1
        self._line(f"pos += len({target}) * {layout.size}")

    def _tagged_fields(self, cls: type[Struct]) -> dict[str, str]:
        """Emit the code that decodes tagged fields at the end of a struct. It skips unknown tags."""
        fields = tagged(cls, self.version)
        count = self._fixed("B")
        self._flush()
        if not fields:
            self._line(f"if {count}:")
            self.depth += 1
            self._count_of_tags(cls, count)
            self._line(f"pos = past_tagged_fields(buf, pos, end, {count})")
            self.depth -= 1
            return {}
        values = {field.name: self._name() for field in fields}
        for field in fields:
            self._line(f"{values[field.name]} = {self._default(field)}")
        tag, size, stop = self._name("tag"), self._name("size"), self._name("stop")
        self._line(f"if {count}:")
        self.depth += 1
        self._count_of_tags(cls, count)
        self._line(f"for _ in range({count}):")
        self.depth += 1
        self._line(f"{tag}, pos = varint(buf, pos)")
        self._line(f"{size}, pos = varint(buf, pos)")
        self._line(f"{stop} = pos + {size}")
        self._line(f"if {stop} > end:")
        self._line(f"    fail('a tagged field of {cls.__name__} is longer than the rest of the frame', pos)")
        for index, field in enumerate(fields):
            self._line(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.depth += 1
            value = self._value(field.kind, field.of, field)
            self._flush()
            self._line(f"{values[field.name]} = {value}")
            self._line(f"if pos != {stop}:")
            self._line(f"    fail('{cls.__name__}.{field.name} differs from its stated length', pos)")
            self.depth -= 1
        self._line("else:")
        self._line(f"    pos = {stop}")
        self.depth -= 2
        return values

    def _count_of_tags(self, cls: type[Struct], count: str) -> None:
        """Emit the code that decodes the rest of the number of tagged fields. Each tagged field is an element, known or not."""
        self._line(f"if {count} > 127:")
        self._line(f"    {count}, pos = varint_rest(buf, pos, {count})")
        self._line(f"if {count} > (end - pos) // 2:")
        self._line(f"    fail('{cls.__name__} has more tagged fields than the rest of the frame can hold', pos)")
        self._spend(count)

    def _spend(self, elements: str) -> None:
        """Emit the code that subtracts elements from the number that the request may still have."""
        if self.is_request:
            self._line(f"room -= {elements}")
            self._line("if room < 0:")
            self._line("    too_many(pos)")


def _unpacked(code: str, size: int, count: int, buf: Bytes, pos: int) -> list[Any]:
    out: list[Any] = []
    for at in range(0, count, ELEMENTS_AT_ONCE):
        out += struct.unpack_from(f">{min(ELEMENTS_AT_ONCE, count - at)}{code}", buf, pos + at * size)
    return out


@lru_cache(maxsize=4096)
def _uuid_of(raw: bytes) -> uuid.UUID:
    # Creating a UUID takes a microsecond, and fetches name the same topics each time.
    return uuid.UUID(bytes=raw) if any(raw) else ZERO_UUID


def read_varint(buf: Bytes, pos: int) -> tuple[int, int]:
    """Decode an unsigned varint. Return (value, position)."""
    first = buf[pos]
    return (first, pos + 1) if first < 128 else _varint_rest(buf, pos + 1, first)


def _varint_rest(buf: Bytes, pos: int, first: int) -> tuple[int, int]:
    """Decode the rest of an unsigned varint whose first byte had its high bit set. Return (value, position)."""
    byte = buf[pos]
    if byte < 128:
        return first & 0x7F | byte << 7, pos + 1
    value, shift = first & 0x7F | (byte & 0x7F) << 7, 14
    while True:
        pos += 1
        byte = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint is longer than five bytes", position=pos)
    if value > 0x7FFFFFFF:
        raise ProtocolError("a varint is larger than an int32", position=pos, found=value)
    return value, pos + 1


def _past_tagged_fields(buf: Bytes, pos: int, end: int, count: int) -> int:
    """Skip unknown tagged fields. Return the position after them."""
    for _ in range(count):
        _tag, pos = read_varint(buf, pos)
        size, pos = read_varint(buf, pos)
        pos += size
        if pos > end:
            raise ProtocolError("a tagged field is longer than the rest of the frame", position=pos - size)
    return pos


def skip_tagged_fields(buf: Bytes, pos: int) -> int:
    """Skip the tagged fields of a header; Kafka has defined none yet. Return the position after them.

    Raises ProtocolError for more than 127 fields: headers are decoded on the event loop, and two million took over a second.
    """
    count = buf[pos]
    if count > 127:
        raise ProtocolError("a header has more than 127 tagged fields", position=pos)
    return _past_tagged_fields(buf, pos + 1, len(buf), count) if count else pos + 1
