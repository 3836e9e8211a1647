"""Converts JSON Schema (drafts 4 to 2020-12) to Arrow types.

| JSON Schema | Arrow |
|---|---|
| string, integer, number, boolean | string, int64, double, bool |
| object with properties | struct |
| object with typed additionalProperties, and no properties | string: JSON, because the object's keys are data |
| array with items of one type | list |
| a type or null, by `type`, `oneOf` or `anyOf` | that type, nullable |
| `$ref` within the schema or to a reference in the registry | the type of the schema that it refers to |
| anything else, and a schema that contains itself | string: JSON |

Values are not validated against the schema. A value is decoded if it fits the Arrow type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from tidelog.errors import InvalidArgumentError

MAX_DEPTH: Final = 32
MAX_FIELDS: Final = 10_000

_PRIMITIVES: Final = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def json_schema_type(text: str, references: Iterable[tuple[str, str]] = (), *, path: str | None = None) -> pa.DataType:
    """Return the Arrow type for values of a schema. Raises InvalidArgumentError if `text` is not a JSON Schema."""
    try:
        documents = {name: json.loads(content) for name, content in references}
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not a JSON Schema: {str(error)[:200]}", path=path) from None
    if not isinstance(schema, dict | bool):
        raise InvalidArgumentError("not a JSON Schema", found=type(schema).__name__, expected="an object", path=path)
    return _Types(documents).of(schema, schema, ())


class _Types:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._fields = 0

    def of(self, schema: Any, document: Any, outer: tuple[int, ...]) -> pa.DataType:
        if not isinstance(schema, dict) or id(schema) in outer or len(outer) >= MAX_DEPTH:
            return pa.string()
        outer = (*outer, id(schema))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self.of(*self._target(reference, document), outer)
        for name in ("oneOf", "anyOf"):
            if isinstance(schema.get(name), list):
                others = [one for one in schema[name] if one != {"type": "null"}]
                return self.of(others[0], document, outer) if len(others) == 1 else pa.string()
        if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
            return self.of(schema["allOf"][0], document, outer)
        kinds = schema.get("type", "object" if "properties" in schema else None)
        kinds = [one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null"]
        kind = kinds[0] if len(kinds) == 1 and isinstance(kinds[0], str) else ""
        if kind == "array" and isinstance(schema.get("items"), dict):
            return pa.list_(self.of(schema["items"], document, outer))
        properties = schema.get("properties")
        if kind == "object" and isinstance(properties, dict) and properties:
            self._fields += len(properties)
            if self._fields > MAX_FIELDS:
                return pa.string()
            return pa.struct([pa.field(name, self.of(one, document, outer)) for name, one in properties.items()])
        return _PRIMITIVES.get(kind, pa.string())

    def _target(self, reference: str, document: Any) -> tuple[Any, Any]:
        """Return the schema that a `$ref` refers to, and the document that contains it; None if there is no such schema."""
        name, _, pointer = reference.partition("#")
        if name:
            document = self._documents.get(name)
        found = document
        for part in pointer.split("/")[1:]:
            step = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        return found, document
