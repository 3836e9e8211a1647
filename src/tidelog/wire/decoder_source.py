"""Writes the Python source of a function that reads one version of one message.

Neighbouring fields of fixed size, the first byte of a compact length and the count of tagged fields among them, are read by one
`unpack_from`; structs are read in place rather than by calls; an array whose elements all have one fixed size goes through
`iter_unpack`. The source of Produce v3 begins::

    def decode(buf, pos=0, end=None, room=1048576):
        ...
        n1, = U0(buf, pos)
        pos += 2

`buf` is cut to `end` beforehand: what ends too early raises struct.error or IndexError, which becomes a ProtocolError with the
place it happened at. Lengths and counts are compared with the bytes that are left before anything is allocated. `room` is
how many elements a request may have, tagged fields and pieces of long strings among them; more raise TooManyElementsError.
Callers that may not spend long give little room first.
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
"""What `struct` calls the kinds of fixed size."""

MAX_STRING_BYTES = 0x7FFF

BITS_OF_A_PIECE = 7
"""As many bytes of a string count as an element: each may be one that is replaced, which takes a dozen nanoseconds."""

MAX_ELEMENTS = 1 << 20
"""Of a request, all its arrays together; its tagged fields, and the pieces of long strings, are elements, too.

Three bytes may be an element that takes 120 bytes of memory: a hundred megabytes of them would take gigabytes. No honest request
of a client comes near it. Responses are not bounded: a client chooses its brokers, and large clusters have many partitions.
"""

MAX_ELEMENTS_OF = dict.fromkeys((4, 5, 6), 1 << 23)
"""Of LeaderAndIsr, StopReplica and UpdateMetadata: a controller names all partitions at once, in seven elements or more each."""

ELEMENTS_AT_ONCE = 4096
"""Numbers that are read at once: no other thread runs meanwhile."""


def kind_of(of: Any) -> str:
    """Return the kind of an array's elements."""
    return "struct" if isinstance(of, type) else str(of.__name__)


def present(cls: type[Struct], version: int) -> list[Field]:
    """Return the fields that a version has, tagged ones left out."""
    return [field for field in cls.FIELDS if version in field.versions and field.tag is None]


def tagged(cls: type[Struct], version: int) -> list[Field]:
    """Return the tagged fields that a version has, by their tags."""
    fields = [field for field in cls.FIELDS if version in field.versions and field.tag is not None]
    return sorted(fields, key=lambda field: field.tag or 0)


def fixed_format(cls: type[Struct], version: int, *, flexible: bool) -> str | None:
    """Return a struct's format if all its fields have fixed sizes, the count of tagged fields included; None otherwise."""
    codes = [FIXED.get(field.kind) for field in present(cls, version)]
    return None if None in codes else ">" + "".join(code for code in codes if code) + ("B" if flexible else "")


def smallest(kind: str, of: Any, version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that a value takes."""
    if kind in FIXED:
        return struct.calcsize(">" + FIXED[kind])
    if kind == "struct":
        fields = (smallest(field.kind, field.of, version, flexible=flexible) for field in present(of, version))
        return max(1, sum(fields) + flexible)
    return 1 if flexible else 2 if kind == "string" else 4


class DecoderSource:
    """The source, line by line, and the names that it uses."""

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
            raise TooManyElementsError(f"{name}: a request of more than {most} elements", position=position) from None

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
        """Return the whole function, `decode(buf, pos=0, end=None, room=MAX_ELEMENTS)`.

        `exact` if nothing may be left after the message.
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
            "        fail('the frame ends within it', pos)",
        ]
        if exact:
            foot += ["    if pos != end:", "        fail('bytes are left after it', pos)"]
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
        """Read the fields of fixed size that have gathered."""
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
        """Read a struct into the variable `target`."""
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
        """Return an expression for a field's default, having emitted what it needs."""
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
        """Read one value; return an expression for it, to be used after the next flush."""
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
                # One byte before it says whether it is there.
                self._line(f"{target} = None")
                self._line(f"if {sign} >= 0:")
                self.depth += 1
            self._struct(of, target)
            self.depth -= is_nullable
            return target
        return self._after_length(kind, of, field)

    def _after_length(self, kind: str, of: Any, field: Field) -> str:
        """Read a value that its length or count precedes, null among them."""
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
        # As Kafka reads it, any negative length is null. The elements of an array never are.
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
            self._line(f"    fail('{what} is longer than what is left', pos)")
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
        """Count the pieces of a string, and refuse one that no answer could carry: others that ask for it would get none."""
        self._line(f"if {length} > 127:")
        self.depth += 1
        self._spend(f"{length} >> {BITS_OF_A_PIECE}")
        self._line(f"if {length} > {MAX_STRING_BYTES // 3} and len({target}.encode()) > {MAX_STRING_BYTES}:")
        self._line(f"    fail('{what} is too long once what is no UTF-8 is replaced', pos)")
        self.depth -= 1

    def _elements(self, target: str, count: str, of: Any, field: Field) -> None:
        kind = kind_of(of)
        least = smallest(kind, of, self.version, flexible=self.flexible)
        bulk = kind in FIXED and kind != "uuid16"
        if bulk or (kind == "struct" and fixed_format(of, self.version, flexible=self.flexible) is not None):
            # Others are read one by one: they come to the frame's end by themselves.
            self._line(f"if {count} > (end - pos) // {least}:")
            self._line(f"    fail('{self.where}.{field.name} has more elements than what is left can hold', pos)")
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
        """Read structs of one fixed size; in a flexible version, as long as they have no tagged fields."""
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
        """Read what stands at the end of a struct of a flexible version; unknown tags are skipped."""
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
        self._line(f"    fail('a tagged field of {cls.__name__} is longer than what is left', pos)")
        for index, field in enumerate(fields):
            self._line(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.depth += 1
            value = self._value(field.kind, field.of, field)
            self._flush()
            self._line(f"{values[field.name]} = {value}")
            self._line(f"if pos != {stop}:")
            self._line(f"    fail('{cls.__name__}.{field.name} is not as long as it says', pos)")
            self.depth -= 1
        self._line("else:")
        self._line(f"    pos = {stop}")
        self.depth -= 2
        return values

    def _count_of_tags(self, cls: type[Struct], count: str) -> None:
        """Read on after the first byte of the number of tagged fields; each is an element, its tag known or not."""
        self._line(f"if {count} > 127:")
        self._line(f"    {count}, pos = varint_rest(buf, pos, {count})")
        self._line(f"if {count} > (end - pos) // 2:")
        self._line(f"    fail('{cls.__name__} has more tagged fields than what is left can hold', pos)")
        self._spend(count)

    def _spend(self, elements: str) -> None:
        """Take so many elements off what a request may have."""
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
    # Making one takes a microsecond, and a fetch names the same topics each time.
    return uuid.UUID(bytes=raw) if any(raw) else ZERO_UUID


def read_varint(buf: Bytes, pos: int) -> tuple[int, int]:
    """Read an unsigned varint. Return (value, position)."""
    first = buf[pos]
    return (first, pos + 1) if first < 128 else _varint_rest(buf, pos + 1, first)


def _varint_rest(buf: Bytes, pos: int, first: int) -> tuple[int, int]:
    """Read on after the first byte of an unsigned varint, which had its high bit set. Return (value, position)."""
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
    """Skip so many unknown tagged fields. Return the position after them."""
    for _ in range(count):
        _tag, pos = read_varint(buf, pos)
        size, pos = read_varint(buf, pos)
        pos += size
        if pos > end:
            raise ProtocolError("a tagged field is longer than what is left", position=pos - size)
    return pos


def skip_tagged_fields(buf: Bytes, pos: int) -> int:
    """Pass over the tagged fields of a header, of which Kafka has defined none yet. Return the position after them.

    Raises ProtocolError where they are more than 127: headers are read on the loop, and two million took more than a second.
    """
    count = buf[pos]
    if count > 127:
        raise ProtocolError("a header has more than 127 tagged fields", position=pos)
    return _past_tagged_fields(buf, pos + 1, len(buf), count) if count else pos + 1
