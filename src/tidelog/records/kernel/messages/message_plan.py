"""Reads messages into plain lists, and writes them from lists: a plan describes the message to one compiled loop.

`wire.usual_messages` makes a plan from the description of a message in `wire`. A plan is an array of numbers: the kind of each
field, and for an array the index at which its elements' fields begin. A struct becomes a list of its fields in declared order,
without tagged fields. A field that the version lacks has its default when read, and is left out when written.

    ListOffsets v7   [replica id, isolation level, [[topic, [[partition, leader epoch, time, 1], ...]], ...], 0]

Unusual messages are not read: `read` returns None, and `wire.codec` reads the message or reports the error. A message is unusual
if it has tagged fields, a null where none is allowed, invalid UTF-8, a length beyond the frame, or more elements than the caller
expects. Bytes after the message are ignored.

Interpreted, this would be slower than the generated functions of `wire.codec`, so no plan is made then.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, varints
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, varints

build_stamp.check(__name__, __file__)

STOP = cython.declare(cython.int, 0)
TAGS = cython.declare(cython.int, 9)
BOOLEAN = cython.declare(cython.int, 3)
STRING = cython.declare(cython.int, 5)
NULLABLE_STRING = cython.declare(cython.int, 6)
RECORDS = cython.declare(cython.int, 7)
ARRAY = cython.declare(cython.int, 10)
NULLABLE_ARRAY = cython.declare(cython.int, 11)
INTS = cython.declare(cython.int, 12)
ABSENT = cython.declare(cython.int, 13)
NULL = cython.declare(cython.int, 14)

KINDS = {
    "stop": 0,
    "int8": 1,
    "int16": 2,
    "boolean": 3,
    "int32": 4,
    "string": 5,
    "nullable string": 6,
    "records": 7,
    "int64": 8,
    "tags": 9,
    "array": 10,
    "nullable array": 11,
    "ints": 12,
    "absent": 13,
    "null": 14,
}
"""The kinds of a plan's fields. An integer's kind is its size in bytes. After "array" follows the index of the elements' plan,
after "absent" the index of the default, after "null" the byte that encodes null, the only usual value there. "stop" or "tags"
(the number of tagged fields, 0) ends a struct.
"""

_KEPT_BYTES = cython.declare(cython.Py_ssize_t, 65536)


@cython.final
@cython.cclass
class MessagePlan:
    """The plan of one version of one message. Not thread-safe."""

    _numbers: object
    _plan: cython.p_int
    _defaults: list
    _is_flexible: cython.bint
    _data: object
    _p: cython.p_uchar
    _at: cython.Py_ssize_t
    _end: cython.Py_ssize_t
    _room: cython.longlong
    _is_unusual: cython.bint
    _buffer: bytearray

    def __init__(self, numbers: object, defaults: list, is_flexible: cython.bint) -> None:
        """`numbers` is an array of int32: see `KINDS`."""
        self._numbers = numbers
        self._plan = buffers.ints(numbers)
        self._defaults = defaults
        self._is_flexible = is_flexible
        self._buffer = bytearray(1024)

    # --- reading

    def read(self, data: object, position: cython.Py_ssize_t, end: cython.Py_ssize_t, room: cython.longlong) -> object:
        """Return the message in `data[position:end]` as a list, or None if it is unusual or has more than `room` array elements.

        Records are slices of `data`, which must be a memoryview of bytes.
        """
        view = cython.declare(Py_buffer)  # noqa: F821 - Cython has it built in.
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            if not 0 <= position <= end <= view.len:
                return None
            self._data = data
            self._p = cython.cast(cython.p_uchar, view.buf)
            self._at, self._end, self._room, self._is_unusual = position, end, room, False
            row = self._read_struct(0)
            return None if self._is_unusual else row
        except UnicodeDecodeError:
            return None
        finally:
            self._data = None
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _read_struct(self, op: cython.Py_ssize_t) -> list:
        """Return the fields of a struct whose plan begins at `op`; an arbitrary list if something is unusual."""
        row: list = []
        p: cython.p_uchar = self._p
        kind: cython.int
        length: cython.longlong
        while True:
            kind = self._plan[op]
            op += 1
            if kind == STOP:
                return row
            if kind == ABSENT:
                row.append(self._defaults[self._plan[op]])
                op += 1
            elif kind == NULL:
                if self._at == self._end or p[self._at] != self._plan[op]:
                    self._is_unusual = True
                    return row
                row.append(None)
                self._at += 1
                op += 1
            elif kind <= 4 or kind == 8 or kind == TAGS:
                length = 1 if kind == BOOLEAN or kind == TAGS else kind
                if length > self._end - self._at:
                    self._is_unusual = True
                    return row
                if kind == 4:
                    row.append(buffers.int32(p, self._at))
                elif kind == 8:
                    row.append(buffers.int64(p, self._at))
                elif kind == 2:
                    row.append(buffers.int16(p, self._at))
                elif kind == 1:
                    row.append(cython.cast(cython.longlong, cython.cast(cython.schar, p[self._at])))
                elif kind == BOOLEAN:
                    row.append(p[self._at] != 0)
                elif p[self._at]:
                    self._is_unusual = True
                    return row
                self._at += length
                if kind == TAGS:
                    return row
            else:
                length = self._read_length(kind)
                if length == -1 and (kind == NULLABLE_STRING or kind == NULLABLE_ARRAY):
                    row.append(None)
                elif length < 0 or length > self._end - self._at:
                    self._is_unusual = True
                    return row
                elif kind <= NULLABLE_STRING:
                    self._room -= length >> 7
                    row.append(cython.cast(cython.p_char, p)[self._at : self._at + length].decode("utf-8"))
                    self._at += length
                elif kind == RECORDS:
                    row.append(self._data[self._at : self._at + length])
                    self._at += length
                else:
                    row.append(self._read_elements(kind, self._plan[op], length))
                if self._room < 0:
                    self._is_unusual = True
                if self._is_unusual:
                    return row
                if kind == ARRAY or kind == NULLABLE_ARRAY:
                    op += 1

    @cython.cfunc
    def _read_elements(self, kind: cython.int, op: cython.Py_ssize_t, count: cython.longlong) -> list:
        rows: list = []
        self._room -= count
        if kind == INTS and count * 4 > self._end - self._at:
            self._is_unusual = True
        if self._room < 0:
            self._is_unusual = True
        while count > 0 and not self._is_unusual:
            if kind == INTS:
                rows.append(buffers.int32(self._p, self._at))
                self._at += 4
            else:
                rows.append(self._read_struct(op))
            count -= 1
        return rows

    @cython.cfunc
    @cython.exceptval(check=False)
    def _read_length(self, kind: cython.int) -> cython.longlong:
        """Return a length or count; -1 for null, and less for a malformed number or one that needs more than four bytes."""
        packed: cython.longlong
        size: cython.int
        if self._is_flexible:
            packed = varints.read(self._p, self._at, self._end)
            size = packed & 15
            if size == 0 or size > 4:
                return -2
            self._at += size
            return (packed >> 4) - 1
        size = 2 if kind <= NULLABLE_STRING else 4
        if size > self._end - self._at:
            return -2
        self._at += size
        return buffers.int16(self._p, self._at - 2) if size == 2 else buffers.int32(self._p, self._at - 4)

    # --- writing

    def write(self, row: list, correlation_id: cython.longlong) -> bytes:
        """Return the whole frame of a response. Its values must fit their fields."""
        self._p = buffers.output(self._buffer)
        self._at = 9 if self._is_flexible else 8
        self._write_struct(row, 0)
        buffers.put(self._p, 0, 4, self._at - 4)
        buffers.put(self._p, 4, 4, correlation_id)
        if self._is_flexible:
            self._p[8] = 0
        frame = cython.cast(cython.p_char, self._p)[: self._at]
        if self._at > _KEPT_BYTES:
            self._buffer = bytearray(1024)
        return frame

    @cython.cfunc
    @cython.exceptval(-1)
    def _make_room(self, size: cython.Py_ssize_t) -> cython.int:
        """Ensure room for `size` bytes and for the longest length field before them."""
        needed: cython.Py_ssize_t = self._at + size + 8
        if needed > len(self._buffer):
            grown = bytearray(2 * needed)
            buffers.copy(buffers.output(grown), 0, self._p, 0, self._at)
            self._buffer = grown
            self._p = buffers.output(grown)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _write_struct(self, row: list, op: cython.Py_ssize_t) -> cython.int:
        kind: cython.int
        count: cython.Py_ssize_t
        field: cython.Py_ssize_t = 0
        while True:
            kind = self._plan[op]
            op += 1
            self._make_room(0)
            if kind == STOP:
                return 0
            if kind == TAGS:
                self._p[self._at] = 0
                self._at += 1
                return 0
            value = row[field]
            field += 1
            if kind == ABSENT:
                op += 1
            elif kind == NULL:
                if value is not None:
                    raise ValueError("a plan supports only null here")
                self._p[self._at] = self._plan[op]
                self._at += 1
                op += 1
            elif kind <= 4 or kind == 8:
                count = 1 if kind == BOOLEAN else kind
                buffers.put(self._p, self._at, count, value)
                self._at += count
            elif kind <= NULLABLE_STRING:
                if value is None:
                    self._write_length(-1, 2)
                else:
                    text: bytes = cython.cast(str, value).encode("utf-8")
                    count = len(text)
                    self._make_room(count)
                    self._write_length(count, 2)
                    self._at = buffers.copy(
                        self._p, self._at, cython.cast(cython.p_uchar, cython.cast(cython.p_char, text)), 0, count
                    )
            else:
                rows: list = [] if value is None else value
                count = len(rows)
                self._write_length(-1 if value is None else count, 4)
                for element in rows:
                    if kind == INTS:
                        self._make_room(0)
                        buffers.put(self._p, self._at, 4, element)
                        self._at += 4
                    else:
                        self._write_struct(element, self._plan[op])
                if kind != INTS:
                    op += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _write_length(self, length: cython.longlong, size: cython.int) -> cython.void:
        if not self._is_flexible:
            buffers.put(self._p, self._at, size, length)
            self._at += size
            return
        length += 1
        while length >= 128:
            self._p[self._at] = (length & 127) | 128
            length >>= 7
            self._at += 1
        self._p[self._at] = length
        self._at += 1
