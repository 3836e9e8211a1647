"""Builds a coordinator's batch in one call: a few uncompressed records with the same timestamp.

The bytes are the same as from `records.builder`. For anything unusual the result is None, and the caller takes the longer way.
Interpreted, it is always None.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout, varints
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp, crc, layout, varints

build_stamp.check(__name__, __file__)
crc.prepare()

_MOST_BYTES = cython.declare(cython.Py_ssize_t, 1 << 20)
_MOST_TEXT = cython.declare(cython.Py_ssize_t, 0x7FFF)
_OFFSET_BYTES = cython.declare(cython.Py_ssize_t, 64)
"""The most bytes of a committed offset's record, without its texts."""


@cython.cfunc
@cython.inline
def _put_bytes(out: cython.p_uchar, at: cython.Py_ssize_t, part: object) -> cython.Py_ssize_t:
    """Write a length and the bytes, or the length of null."""
    if part is None:
        return varints.put(out, at, -1)
    size: cython.Py_ssize_t = len(part)
    at = varints.put(out, at, size)
    return buffers.copy(out, at, cython.cast(cython.p_uchar, cython.cast(cython.p_char, cython.cast(bytes, part))), 0, size)


def build_state_batch(
    entries: list,
    timestamp: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    base_sequence: cython.longlong,
    is_transactional: cython.bint,
) -> bytearray | None:
    """Return a v2 batch at offset 0 of pairs of key and value (bytes, or None for null) with one CreateTime in ms.

    Return None if there are no entries, more than a mebibyte, a negative time, or a transaction without a producer.
    """
    if not cython.compiled:
        return None
    count: cython.Py_ssize_t = len(entries)
    if count == 0 or timestamp < 0 or (is_transactional and producer_id < 0):
        return None
    size: cython.Py_ssize_t = layout.HEADER_BYTES
    key: bytes
    value: bytes
    for key, value in entries:
        size += 30 + (0 if key is None else len(key)) + (0 if value is None else len(value))
    if size > _MOST_BYTES:
        return None
    batch: bytearray = bytearray(size)
    out: cython.p_uchar = buffers.output(batch)
    at: cython.Py_ssize_t = layout.HEADER_BYTES
    body: cython.longlong
    length: cython.longlong
    i: cython.longlong = 0
    for key, value in entries:
        body = 3 + varints.size(i)  # Attributes, time, and the number of headers.
        length = -1 if key is None else len(key)
        body += varints.size(length) + (length if length > 0 else 0)
        length = -1 if value is None else len(value)
        body += varints.size(length) + (length if length > 0 else 0)
        at = varints.put(out, at, body)
        out[at] = out[at + 1] = 0
        at = varints.put(out, at + 2, i)
        at = _put_bytes(out, at, key)
        at = _put_bytes(out, at, value)
        out[at] = 0
        at += 1
        i += 1
    return _finished(batch, at, count, timestamp, producer_id, producer_epoch, base_sequence, is_transactional)


def build_commit_batch(group_id: str, topics: list, timestamp: cython.longlong, longest: cython.Py_ssize_t) -> bytearray | None:
    """Return a v2 batch at offset 0 of a group's committed offsets, as `groups.offset_records` encodes them (key v1, value v3).

    `topics` are the rows of an OffsetCommit request: (name, topic id, rows of partitions), and for each partition (index, offset,
    leader epoch, time of the commit, metadata). A time of -1 means `timestamp` (ms).

    Return None if there are no offsets, a topic has none, a name or a partition is repeated, a text is not ASCII or too long for
    a record, or metadata has more than `longest` characters.
    """
    if not cython.compiled or timestamp < 0:
        return None
    group: bytes | None = _ascii(group_id, _MOST_TEXT)
    longest = min(longest, _MOST_TEXT)
    if group is None or len({topic[0] for topic in topics}) < len(topics):
        return None
    size: cython.Py_ssize_t = layout.HEADER_BYTES
    count: cython.longlong = 0
    names: list = []
    for name, _, partitions in topics:
        text: bytes | None = _ascii(name, _MOST_TEXT)
        if text is None or not partitions or len({partition[0] for partition in partitions}) < len(partitions):
            return None
        names.append(text)
        for partition in partitions:
            metadata = partition[4]
            size += _OFFSET_BYTES + len(group) + len(text) + (0 if metadata is None else len(metadata))
            count += 1
    if not count or size > _MOST_BYTES:
        return None
    batch: bytearray = bytearray(size)
    out: cython.p_uchar = buffers.output(batch)
    at: cython.Py_ssize_t = layout.HEADER_BYTES
    body: cython.longlong
    key_bytes: cython.longlong
    value_bytes: cython.longlong
    commit_ms: cython.longlong
    i: cython.longlong = 0
    for topic, text in zip(topics, names):
        for index, offset, leader_epoch, time, metadata in topic[2]:
            note: bytes | None = _ascii(metadata or "", longest)
            if note is None:
                return None
            commit_ms = time
            key_bytes = 10 + len(group) + len(text)
            value_bytes = 24 + len(note)
            body = 3 + varints.size(i) + varints.size(key_bytes) + key_bytes + varints.size(value_bytes) + value_bytes
            at = varints.put(out, at, body)
            out[at] = out[at + 1] = 0
            at = varints.put(out, at + 2, i)
            at = varints.put(out, at, key_bytes)
            buffers.put(out, at, 2, 1)
            at = _put_string(out, _put_string(out, at + 2, group), text)
            buffers.put(out, at, 4, index)
            at = varints.put(out, at + 4, value_bytes)
            buffers.put(out, at, 2, 3)
            buffers.put(out, at + 2, 8, offset)
            buffers.put(out, at + 10, 4, leader_epoch)
            at = _put_string(out, at + 14, note)
            buffers.put(out, at, 8, timestamp if commit_ms == -1 else commit_ms)
            out[at + 8] = 0
            at += 9
            i += 1
    return _finished(batch, at, count, timestamp, -1, -1, -1, False)


@cython.cfunc
def _ascii(text: object, longest: cython.Py_ssize_t) -> bytes | None:
    """Return the bytes of an ASCII text of at most `longest` characters; None for any other."""
    if len(text) > longest or not text.isascii():
        return None
    return text.encode()


@cython.cfunc
@cython.inline
def _put_string(out: cython.p_uchar, at: cython.Py_ssize_t, text: bytes) -> cython.Py_ssize_t:
    """Write an int16 length and the bytes."""
    size: cython.Py_ssize_t = len(text)
    buffers.put(out, at, 2, size)
    return buffers.copy(out, at + 2, cython.cast(cython.p_uchar, cython.cast(cython.p_char, text)), 0, size)


@cython.cfunc
def _finished(
    batch: bytearray,
    size: cython.Py_ssize_t,
    count: cython.longlong,
    timestamp: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    base_sequence: cython.longlong,
    is_transactional: cython.bint,
) -> bytearray:
    """Write the header of a batch whose records end at `size`, and cut it off there."""
    out: cython.p_uchar = buffers.output(batch)
    checksum: cython.uint
    buffers.put(out, 8, 4, size - layout.LOG_OVERHEAD)
    buffers.put(out, 12, 4, -1)
    out[16] = 2
    buffers.put(out, 21, 2, layout.TRANSACTIONAL_BIT if is_transactional else 0)
    buffers.put(out, 23, 4, count - 1)
    buffers.put(out, 27, 8, timestamp)
    buffers.put(out, 35, 8, timestamp)
    buffers.put(out, 43, 8, producer_id)
    buffers.put(out, 51, 2, producer_epoch)
    buffers.put(out, 53, 4, base_sequence)
    buffers.put(out, 57, 4, count)
    with cython.nogil:
        checksum = crc.crc32c(out, 21, size, 0)
    buffers.put(out, 17, 4, checksum)
    del batch[size:]
    return batch
