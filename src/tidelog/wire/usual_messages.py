"""Plans with which compiled code reads and writes frequent requests and responses as plain lists: see
`records.kernel.MessagePlan`.

The plans are derived from the declarations in `messages`, like the functions of `codec`. So both read and write the same bytes.
"""

from __future__ import annotations

from array import array
from typing import Any

from tidelog.records.kernel import COMPILED, KINDS, MessagePlan
from tidelog.wire.fields import ZERO_UUID, Field, Message, Struct

_STOP, _TAGS, _ABSENT, _NULL = KINDS["stop"], KINDS["tags"], KINDS["absent"], KINDS["null"]

NULL_BYTES = {"array": 0, "struct": 255}
"""The byte that encodes null in a flexible version, for each kind."""


def plan_of(cls: type[Message], version: int) -> MessagePlan | None:
    """Return the plan of a message in a version: its fields in declared order, without tagged fields.

    Return None if the kernels are interpreted, or if the message has fields of a kind that plans do not support.
    """
    if not COMPILED:
        return None
    plan = _Plan(version, is_flexible=version >= cls.FIRST_FLEXIBLE)
    try:
        plan.add(cls)
    except KeyError:
        return None
    return MessagePlan(array("i", plan.numbers), plan.defaults, plan.is_flexible)


def is_null_only(field: Field, version: int, *, is_flexible: bool) -> bool:
    """Whether plans support a field only as null: a nullable struct, or a nullable array of elements that plans do not
    support.
    """
    if field.kind not in NULL_BYTES or version not in field.nullable or not is_flexible:
        return False
    if field.kind == "struct" or not isinstance(field.of, type):
        return True
    element: type[Struct] = field.of
    return any(one.kind not in KINDS for one in element.FIELDS if version in one.versions)


class _Plan:
    """A plan that is being built: a struct's fields, followed by the fields of the structs in its arrays."""

    def __init__(self, version: int, *, is_flexible: bool) -> None:
        self.is_flexible = is_flexible
        self.numbers: list[int] = []
        self.defaults: list[Any] = []
        self._version = version

    def add(self, cls: type[Struct]) -> None:
        """Add a struct's fields. Raises KeyError for a kind that plans do not support."""
        arrays: list[tuple[int, Field]] = []
        for field in cls.FIELDS:
            if field.tag is not None:
                continue
            if self._version not in field.versions:
                self.numbers += (_ABSENT, len(self.defaults))
                self.defaults.append(ZERO_UUID if field.kind == "uuid16" else field.default)
                continue
            nullable = "nullable " if self._version in field.nullable else ""
            if is_null_only(field, self._version, is_flexible=self.is_flexible):
                self.numbers += (_NULL, NULL_BYTES[field.kind])
                continue
            if field.kind == "array" and not isinstance(field.of, type):
                if field.of.__name__ != "int32" or nullable:
                    raise KeyError(field.of.__name__)
                self.numbers.append(KINDS["ints"])
                continue
            self.numbers.append(KINDS[("" if field.kind == "records" else nullable) + field.kind])
            if field.kind == "array":
                arrays.append((len(self.numbers), field))
                self.numbers.append(0)
        self.numbers.append(_TAGS if self.is_flexible else _STOP)
        for place, field in arrays:
            self.numbers[place] = len(self.numbers)
            self.add(field.of)
