r"""Encodes rows as JSON text, a column at a time.

Every column becomes an Arrow column of JSON texts, and the columns are joined into one object per row. No row becomes a Python
object, except in binary columns, because Arrow has no base64.

==============================  ==========================================================================
Arrow type                      JSON
==============================  ==========================================================================
null, and any null              ``null``
bool                            ``true``, ``false``
integers, decimals              the number, all digits
floating                        the shortest text that parses to the same value, with ``.`` or an exponent;
                                ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
string                          the text; only ``"``, ``\\`` and control characters are escaped
binary                          base64
date                            ``"2013-01-01"``
timestamp without zone          ``"2013-01-01T10:00:00.123"``, as many digits as the unit has
timestamp with zone             the same instant in UTC: ``"2013-01-01T10:00:00.123Z"``
time                            ``"10:00:00.123"``
duration                        the number, in the type's unit
list                            array
struct                          object, fields in the order of the type
map                             an object if the keys are text, otherwise an array of ``[key, value]``
dictionary, run-end encoded     like the encoded values
==============================  ==========================================================================

Fields keep the file's order, and there is no white space. Equal rows have equal bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidelog.errors import InvalidArgumentError

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"
_ESCAPES = [(chr(code), json.dumps(chr(code))[1:-1]) for code in range(0x20)]


def encode_rows(batch: pa.RecordBatch) -> pa.StringArray:
    """Return one JSON object per row of `batch`, as text, never null.

    Raises InvalidArgumentError for two columns with the same name, for text that is not UTF-8, and for a type without a JSON
    form.
    """
    names = batch.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgumentError(f"two columns are named {twice[0]!r}, but a JSON object can hold only one")
    return _objects(names, [encode_column(batch.column(i), names[i]) for i in range(len(names))], batch.num_rows)


def encode_column(array: pa.Array, name: str) -> pa.StringArray:
    """Return each value of `array` as JSON text. A null becomes the text ``null``. Errors show the column's `name`."""
    texts = _encode(array, name)
    return pc.fill_null(texts, "null") if texts.null_count else texts


def plain_text(array: pa.Array, name: str) -> pa.Array:
    """Return keys or raw values as bytes: binary unchanged, text as UTF-8, anything else as bare JSON text. Nulls stay null."""
    array = _stored(array)
    if _is_binary(array.type):
        return array.cast(pa.binary())
    if _is_text(array.type):
        return _text(array, name).cast(pa.binary())
    texts = _bare(array)
    if texts is None:
        texts = pc.if_else(array.is_valid(), encode_column(array, name), pa.scalar(None, pa.string()))
    return texts.cast(pa.binary())


def _objects(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.StringArray:
    """Join encoded columns into objects."""
    if not columns:
        return pa.array(["{}"] * rows, pa.string())
    parts: list[pa.Array | str] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [("," if i else "{") + json.dumps(name, ensure_ascii=False) + ":", column]
    return pc.binary_join_element_wise(*parts, "}", "")


def _encode(array: pa.Array, name: str) -> pa.StringArray:
    """Return JSON texts. Where `array` is null, the text may be null."""
    array = _stored(array)
    kind = array.type
    if pt.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if _is_text(kind):
        return _quoted(_escaped(_text(array, name)))
    if _is_binary(kind):
        return pa.array([None if v is None else f'"{base64.b64encode(v).decode()}"' for v in array.to_pylist()], pa.string())
    if pt.is_floating(kind):
        texts = _float_text(array)
        return pc.if_else(pc.is_finite(array), texts, _quoted(texts))
    texts = _bare(array)
    if texts is not None:
        number = pt.is_integer(kind) or pt.is_decimal(kind) or pt.is_boolean(kind) or pt.is_duration(kind)
        return texts if number else _quoted(texts)
    nested = next((encoder for test, encoder in _NESTED if test(kind)), None)
    if nested is None:
        raise InvalidArgumentError(f"column {name!r} has a type that JSON cannot represent", found=str(kind))
    return nested(array, name)


def _bare(array: pa.Array) -> pa.StringArray | None:
    """Return the values as text without quotes if their type never needs escaping; otherwise return None."""
    kind = array.type
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_decimal(kind) or pt.is_time(kind) or pt.is_date(kind):
        return array.cast(pa.string())
    if pt.is_floating(kind):
        return _float_text(array)
    if pt.is_duration(kind):
        return array.cast(pa.int64()).cast(pa.string())
    if pt.is_timestamp(kind):
        # A timestamp with a zone stores the instant in UTC, so dropping the zone keeps the number.
        naive = array.cast(pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string())
        texts = pc.replace_substring(naive, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(texts, "Z", "") if kind.tz is not None else texts
    return None


def _float_text(array: pa.Array) -> pa.StringArray:
    """Return the shortest text that parses to the same value and looks like a floating-point number."""
    texts = array.cast(pa.string())
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return texts
    texts = pc.if_else(pc.is_nan(array), "NaN", texts)
    signed = pc.if_else(pc.greater(array, pa.scalar(0, array.type)), "Infinity", "-Infinity")
    return pc.if_else(pc.is_inf(array), signed, texts)


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    """Escape texts as JSON requires. Most columns need no escaping, which a single pass detects."""
    if not _any(texts, _NEEDS_ESCAPE):
        return texts
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if _any(texts, _CONTROL):
        for character, escape in _ESCAPES:
            texts = pc.replace_substring(texts, character, escape)
    return texts


def _any(texts: pa.StringArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _text(array: pa.Array, name: str) -> pa.StringArray:
    """Return text as plain Arrow strings. Raises InvalidArgumentError for invalid UTF-8, which a Parquet file may contain."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise InvalidArgumentError(f"column {name!r} has text that is not UTF-8") from None
    return array.cast(pa.string())


def _list(array: pa.Array, name: str) -> pa.StringArray:
    items = encode_column(array.flatten(), name)
    offsets = _offsets_of(pc.list_value_length(array))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    texts = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _struct(array: pa.StructArray, name: str) -> pa.StringArray:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    columns = [encode_column(column, f"{name}.{child}") for child, column in zip(names, array.flatten(), strict=True)]
    return pc.if_else(array.is_valid(), _objects(names, columns, len(array)), pa.scalar(None, pa.string()))


def _map(array: pa.MapArray, name: str) -> pa.StringArray:
    keys, items = array.keys, array.items
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    keys, items = keys.slice(start, end - start), items.slice(start, end - start)
    as_object = _is_text(_stored(keys).type)
    pairs = pc.binary_join_element_wise(encode_column(keys, name), encode_column(items, name), ":" if as_object else ",")
    if not as_object:
        pairs = pc.binary_join_element_wise("[", pairs, "]", "")
    lengths = pc.if_else(array.is_valid(), pc.subtract(array.offsets[1:], array.offsets[:-1]), pa.scalar(None, pa.int32()))
    joined = pc.binary_join(pa.ListArray.from_arrays(_offsets_of(lengths), pairs), ",")
    opening, closing = ("{", "}") if as_object else ("[", "]")
    texts = pc.binary_join_element_wise(opening, joined, closing, "")
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string()))


def _offsets_of(lengths: pa.Array) -> pa.Array:
    """Return the list offsets, starting at zero, of lists with these lengths. A null length counts as zero."""
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0).cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _stored(array: pa.Array) -> pa.Array:
    """Return the plain values of an extension, dictionary, run-end encoded, list view or half float array."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pt.is_dictionary(kind):
        return _stored(array.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return _stored(pc.run_end_decode(array))
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):
        return array.cast(pa.large_list(kind.value_type))
    if pt.is_float16(kind):
        return array.cast(pa.float32())  # Arrow cannot compute with half floats.
    return array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


_NESTED: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, str], pa.StringArray]]] = [
    (_is_list, _list),
    (pt.is_struct, _struct),
    (pt.is_map, _map),
]
