"""Generates the Python source of a function that encodes one version of one message.

The function returns chunks to be sent in order. Record batches are separate chunks, not copied; everything between them is
joined. One call packs neighbouring fixed-size fields, including compact lengths below 128. An array of fixed-size elements is one
join.

Messages with very many elements are encoded on a thread other than the broker's event loop. But no other thread runs during a
join or while its parts are freed; half a million elements took 120 ms. So about every `PARTS_AT_ONCE` parts are joined into a
chunk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from tidelog.errors import InvalidArgumentError
from tidelog.wire.decoder_source import FIXED, MAX_STRING_BYTES, fixed_format, kind_of, present, tagged
from tidelog.wire.fields import ZERO_UUID, Field, Message, Struct

PARTS_AT_ONCE = 4096
"""The number of parts per join. A join of this size takes a third of a millisecond, including freeing the parts."""

_BYTES = tuple(bytes([value]) for value in range(128))
"""The one-byte varints. Nearly all lengths and counts are among them."""


SHORT = 9
"""Arrays of at least this many numbers are encoded differently from shorter arrays."""

DATA_JOINED = 4096
"""The size in bytes of the largest field that is copied into a join. Larger fields are separate chunks, like record batches."""


class EncoderSource:
    """The generated lines and the names that they use."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.lines: list[str] = []
        self.depth = 2
        self.run: list[tuple[str, str]] = []
        self.write = "w"
        self.count = 0
        name = f"{cls.__name__} v{version}"

        def fail(what: object) -> NoReturn:
            raise InvalidArgumentError(f"{name} cannot be written: {what}")

        self.names: dict[str, Any] = {
            "fail": fail,
            "pack": struct.pack,
            "pieces": _pieces,
            "varint": varint_bytes,
            "BYTES": _BYTES,
            "UNWRITABLE": (struct.error, AttributeError, TypeError, UnicodeEncodeError),
            "ZERO_UUID": ZERO_UUID,
        }

    def source(self) -> str:
        """Return the source of the whole function, `encode(message)`."""
        self._struct(self.cls, "message")
        self._flush()
        head = [
            "def encode(message):",
            "    chunks = []",
            "    parts = []",
            "    w = parts.append",
            "    try:",
        ]
        foot = [
            "    except UNWRITABLE as error:",
            "        fail(error)",
            "    if parts:",
            "        chunks.append(b''.join(parts))",
            "    return chunks",
        ]
        return "\n".join(head + (self.lines or ["        pass"]) + foot) + "\n"

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _name(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _const(self, stem: str, value: Any) -> str:
        name = self._name(stem)
        self.names[name] = value
        return name

    def _packed(self, run: list[tuple[str, str]]) -> str:
        """Return an expression for the bytes of fixed-size fields."""
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        if all(value.isdigit() for _, value in run):
            return repr(layout.pack(*(int(value) for _, value in run)))
        return f"{self._const('P', layout.pack)}({', '.join(value for _, value in run)})"

    def _flush(self) -> None:
        """Emit the code that packs the pending fixed-size fields."""
        if self.run:
            self._line(f"{self.write}({self._packed(self.run)})")
            self.run.clear()

    def _flush_with_length(self, length: str) -> None:
        """Emit the code that writes the pending fields and a compact length (already incremented by one)."""
        if not self.run:
            self._line(f"{self.write}(BYTES[{length}] if {length} < 128 else varint({length}))")
            return
        self._line(f"if {length} < 128:")
        self._line(f"    {self.write}({self._packed([*self.run, ('B', length)])})")
        self._line("else:")
        self._line(f"    {self.write}({self._packed(self.run)})")
        self._line(f"    {self.write}(varint({length}))")
        self.run.clear()

    def _struct(self, cls: type[Struct], obj: str) -> None:
        for field in present(cls, self.version):
            self._value(field.kind, field.of, field, f"{obj}.{field.name}")
        if self.flexible:
            self._tagged_fields(cls, obj)

    def _value(self, kind: str, of: Any, field: Field, value: str) -> None:
        if kind == "uuid16":
            self.run.append((FIXED[kind], f"{value}.bytes"))
        elif kind in FIXED:
            self.run.append((FIXED[kind], value))
        elif kind == "struct":
            target = self._name("o")
            self._line(f"{target} = {value}")
            if self.version in field.nullable and field.kind == kind:
                self._nullable_struct(of, target, b"\xff" if field.tag is None else b"\x00")
            else:
                self._struct(of, target)
        else:
            self._after_length(kind, of, field, value)

    def _nullable_struct(self, of: type[Struct], target: str, null: bytes) -> None:
        """Emit the code that writes `null` if the struct is None, otherwise 1 and the struct."""
        self._flush()
        self._line(f"if {target} is None:")
        self._line(f"    {self.write}({null!r})")
        self._line("else:")
        self.depth += 1
        self.run.append(("b", "1"))
        self._struct(of, target)
        self._flush()
        self.depth -= 1

    def _after_length(self, kind: str, of: Any, field: Field, value: str) -> None:
        """Emit the code that writes a value after its length or count, or writes null."""
        held, length = self._name(), self._name("n")
        nullable = self.version in field.nullable and field.kind == kind
        self._line(f"{held} = {value}")
        is_short = kind == "array" and not nullable and kind_of(of) in FIXED and kind_of(of) != "uuid16"
        if is_short:
            # Nearly all arrays of numbers are short, like replicas, so one call packs count and numbers.
            self._flush()
            self._line(f"{length} = len({held})")
            self._line(f"if {length} < {SHORT}:")
            self._line(
                f"    {self.write}({self._const('S', self._short(of))}[{length}]({length}{' + 1' * self.flexible}, *{held}))"
            )
            self._line("else:")
            self.depth += 1
        if nullable:
            self._line(f"if {held} is None:")
            self._line(f"    {length} = -1")
            self._line("else:")
            self.depth += 1
        if kind == "string":
            self._line(f"{held} = {held}.encode()")
        if kind == "records":
            self._line(f"{length} = sum(map(len, {held})) if type({held}) in (list, tuple) else len({held})")
        elif not is_short:
            self._line(f"{length} = len({held})")
        if nullable:
            self.depth -= 1
        if self.flexible:
            if kind == "string":
                self._line(f"if {length} > {MAX_STRING_BYTES}:")
                self._line(f"    fail('a string of %d bytes' % {length})")
            self._line(f"{length} += 1")
            self._flush_with_length(length)
        else:
            self.run.append(("h" if kind == "string" else "i", length))
            self._flush()
        at_least_one = f"if {length} > {int(self.flexible)}:"
        if kind == "array":
            self._line(at_least_one)
            self.depth += 1
            self._elements(held, of, field)
            self.depth -= 1 + is_short
        elif kind == "records":
            self._line(at_least_one)
            self._line("    chunks.append(b''.join(parts))")
            self._line("    parts.clear()")
            self._line(f"    if type({held}) in (list, tuple):")
            self._line(f"        chunks += {held}")
            self._line("    else:")
            self._line(f"        chunks.append({held})")
        elif kind == "data" and self.write == "w":
            self._line(f"if {length} > {DATA_JOINED + self.flexible}:")
            self._line("    chunks.append(b''.join(parts))")
            self._line("    parts.clear()")
            self._line(f"    chunks.append({held})")
            self._line(f"el{at_least_one}")
            self._line(f"    {self.write}({held})")
        else:
            self._line(at_least_one)
            self._line(f"    {self.write}({held})")

    def _short(self, of: Any) -> tuple[Callable[..., bytes], ...]:
        """Return the functions that pack arrays of 0, 1, 2... numbers, each with its count."""
        count, code = "B" if self.flexible else "i", FIXED[kind_of(of)]
        return tuple(struct.Struct(f">{count}{size}{code}").pack for size in range(SHORT))

    def _elements(self, held: str, of: Any, field: Field) -> None:
        kind = kind_of(of)
        if kind in FIXED and kind != "uuid16":
            piece = self._name()
            self._line(f"for {piece} in ({held},) if len({held}) <= {PARTS_AT_ONCE} else pieces({held}):")
            self._line(f"    {self.write}(pack('>%d{FIXED[kind]}' % len({piece}), *{piece}))")
            return
        element = self._name("o")
        if kind == "struct" and self._is_fixed(of):
            fields = present(of, self.version)
            run = [(FIXED[f.kind], f"{element}.{f.name}{'.bytes' if f.kind == 'uuid16' else ''}") for f in fields]
            packed = self._packed([*run, *([("B", "0")] if self.flexible else [])])
            piece = self._name()
            self._line(f"for {piece} in ({held},) if len({held}) <= {PARTS_AT_ONCE} else pieces({held}):")
            self._line(f"    {self.write}(b''.join([{packed} for {element} in {piece}]))")
            return
        self._line(f"for {element} in {held}:")
        self.depth += 1
        self._value(kind, of, field, element)
        self._flush()
        if self.write == "w":
            self._line(f"if len(parts) > {PARTS_AT_ONCE}:")
            self._line("    chunks.append(b''.join(parts))")
            self._line("    parts.clear()")
        self.depth -= 1

    def _is_fixed(self, of: type[Struct]) -> bool:
        """Return whether a struct's size is independent of its values. With tagged fields it is not."""
        return fixed_format(of, self.version, flexible=self.flexible) is not None and not tagged(of, self.version)

    def _tagged_fields(self, cls: type[Struct], obj: str) -> None:
        """Emit the code that writes the tagged fields that differ from their defaults."""
        fields = tagged(cls, self.version)
        if not fields:
            self.run.append(("B", "0"))
            return
        count, content = self._name("n"), self._name("tags")
        self._line(f"{count} = 0")
        self._line(f"{content} = b''")
        for field in fields:
            value = self._name()
            self._line(f"{value} = {obj}.{field.name}")
            self._line(f"if {self._differs(field, value)}:")
            self.depth += 1
            parts, write, run = self._name("parts"), self.write, self.run
            self.write, self.run = f"{parts}.append", []
            self._line(f"{parts} = []")
            self._value(field.kind, field.of, field, value)
            self._flush()
            self.write, self.run = write, run
            self._line(f"{parts} = b''.join({parts})")
            self._line(f"{content} += varint({field.tag}) + varint(len({parts})) + {parts}")
            self._line(f"{count} += 1")
            self.depth -= 1
        self.run.append(("B", count))
        self._flush()
        self._line(f"if {count}:")
        self._line(f"    {self.write}({content})")

    def _differs(self, field: Field, value: str) -> str:
        """Return a condition that is true if the field differs from its default."""
        if field.kind == "uuid16":
            return f"{value} != ZERO_UUID"
        if field.kind == "array" and field.default is not None:
            return f"{value} is None or {value}" if self.version in field.nullable else value
        if field.kind == "struct":
            null = f"{value} is None or " if self.version in field.nullable else ""
            return null + " or ".join(self._differs(inner, f"{value}.{inner.name}") for inner in field.of.FIELDS)
        return f"{value} is not None" if field.default is None else f"{value} != {field.default!r}"


def _pieces(elements: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(elements), PARTS_AT_ONCE):
        yield elements[start : start + PARTS_AT_ONCE]


def varint_bytes(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
