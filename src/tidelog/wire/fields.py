"""The notation in which `messages/` declares the protocol, and the classes that it creates.

A message is a class, its fields are attributes, and each field states which versions have it::

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32("10+", default=-1)
        leader_epoch: int = int32("10+", default=-1)

    class ProduceRequest(Message, api="Produce", key=0, versions="0-13", flexible="9+"):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        acks: int = int16()
        topic_data: list[TopicProduceData] = array(TopicProduceData)

| parameter of a field | |
|---|---|
| first argument | the versions that have the field: "0+" (the default), "3+", "0-12", "8" |
| `nullable` | the versions in which the field may be null |
| `tag` | makes it a tagged field with this number, at the end of its struct; encoded only if it differs from its default |
| `default` | the value if a version lacks the field or it was not set; by default 0, "", b"", `[]`, the zero UUID, no records |

The encoding depends on the version. From a message's first flexible version on (KIP-482), lengths and counts are varints that
are incremented by one, 0 means null, and each struct ends with its tagged fields.

The classes have slots, a constructor that takes every field by keyword or in declared order, `==`, and a `repr` of the fields
that differ from their defaults. The constructor is compiled for the first instance, because a broker starts with a hundred such
classes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, dataclass_transform, overload

from tidelog.errors import InvalidArgumentError
from tidelog.wire.generated import compiled

T = TypeVar("T")

Bytes: TypeAlias = bytes | bytearray | memoryview

Records: TypeAlias = Any
"""Record batches. A decoded value is a memoryview into the frame, or None. A value to encode is any Bytes, a list or tuple of
Bytes, which are sent in order, or None."""

ZERO_UUID = uuid.UUID(int=0)
"""Means "no id" on the wire."""

_LAST = 1 << 15


class Versions(NamedTuple):
    """The versions from `first` to `last`, inclusive."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSION = Versions(_LAST, -1)


def parse_versions(text: str | None) -> Versions:
    """Parse "3+", "0-12" or "8"; None means no version."""
    if text is None:
        return NO_VERSION
    first, dash, last = text.removesuffix("+").partition("-")
    return Versions(int(first), _LAST if text.endswith("+") else int(last) if dash else int(first))


class Field:
    """A field's declaration. `kind` is the name of a function below; `of` is the element type of an array, or the type of a
    struct.
    """

    __slots__ = ("default", "kind", "name", "nullable", "of", "tag", "versions")

    def __init__(
        self, kind: str, versions: str, default: Any, *, nullable: str | None = None, tag: int | None = None, of: Any = None
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = parse_versions(versions)
        self.nullable = parse_versions(nullable)
        self.tag = tag
        self.default = default
        self.of = of

    def make_default(self) -> Any:
        """Return the default: a new list or struct each time."""
        if self.kind == "array":
            return None if self.default is None else []
        if self.kind == "struct" and self.default is not None:
            return self.of()
        return self.default


def _declare(kind: str, versions: str, default: Any, **more: Any) -> Any:
    # For a type checker a field has its value's type, so that the class body reads like a dataclass.
    return Field(kind, versions, default, **more)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None) -> bool:
    """One byte; any value but 0 is true."""
    return _declare("boolean", versions, default, tag=tag)  # type: ignore[no-any-return]


def int8(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """One byte, signed."""
    return _declare("int8", versions, default, tag=tag)  # type: ignore[no-any-return]


def int16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Two bytes, signed. All numbers are big-endian."""
    return _declare("int16", versions, default, tag=tag)  # type: ignore[no-any-return]


def uint16(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Two bytes, unsigned."""
    return _declare("uint16", versions, default, tag=tag)  # type: ignore[no-any-return]


def int32(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Four bytes, signed."""
    return _declare("int32", versions, default, tag=tag)  # type: ignore[no-any-return]


def int64(versions: str = "0+", *, default: int = 0, tag: int | None = None) -> int:
    """Eight bytes, signed."""
    return _declare("int64", versions, default, tag=tag)  # type: ignore[no-any-return]


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None) -> float:
    """Eight bytes, IEEE 754."""
    return _declare("float64", versions, default, tag=tag)  # type: ignore[no-any-return]


def uuid16(versions: str = "0+", *, tag: int | None = None) -> uuid.UUID:
    """Sixteen bytes; the zero UUID means that there is no id."""
    return _declare("uuid16", versions, ZERO_UUID, tag=tag)  # type: ignore[no-any-return]


@overload
def string(versions: str = ..., *, default: str = ..., tag: int | None = ...) -> str: ...
@overload
def string(versions: str = ..., *, nullable: str, default: str | None = ..., tag: int | None = ...) -> str | None: ...
def string(versions: str = "0+", *, nullable: str | None = None, default: str | None = "", tag: int | None = None) -> str | None:
    """A length, and UTF-8 text of at most 32767 bytes. Invalid UTF-8 is decoded with replacement characters, as in Java."""
    return _declare("string", versions, default, nullable=nullable, tag=tag)  # type: ignore[no-any-return]


@overload
def data(versions: str = ..., *, tag: int | None = ...) -> bytes: ...
@overload
def data(versions: str = ..., *, nullable: str, default: bytes | None = ..., tag: int | None = ...) -> bytes | None: ...
def data(
    versions: str = "0+", *, nullable: str | None = None, default: bytes | None = b"", tag: int | None = None
) -> bytes | None:
    """A length, and bytes, which are copied out of the frame."""
    return _declare("data", versions, default, nullable=nullable, tag=tag)  # type: ignore[no-any-return]


def batches(versions: str = "0+", *, nullable: str | None = None, tag: int | None = None) -> Records:
    """A length in bytes, and record batches, which are not copied in either direction."""
    return _declare("records", versions, None, nullable=nullable, tag=tag)


@overload
def struct(of: type[T], versions: str = ..., *, tag: int | None = ...) -> T: ...
@overload
def struct(of: type[T], versions: str = ..., *, nullable: str, tag: int | None = ...) -> T | None: ...
def struct(of: type[T], versions: str = "0+", *, nullable: str | None = None, tag: int | None = None) -> T | None:
    """A nested struct. A byte precedes a nullable struct, 1 if the struct is present.

    The byte for null is -1, and null is the default. In a tagged field the byte for null is 0, and the default is a struct of
    defaults, as in Kafka.
    """
    default = () if nullable is None or tag is not None else None
    return _declare("struct", versions, default, nullable=nullable, tag=tag, of=of)  # type: ignore[no-any-return]


@overload
def array(of: Callable[..., T], versions: str = ..., *, tag: int | None = ...) -> list[T]: ...
@overload
def array(
    of: Callable[..., T], versions: str = ..., *, nullable: str, default: tuple[()] | None = ..., tag: int | None = ...
) -> list[T] | None: ...
def array(
    of: Callable[..., T],
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: tuple[()] | None = (),
    tag: int | None = None,
) -> list[T] | None:
    """A count, and elements. `of` is a struct, or the function that declares a field of the elements' kind: `array(int32)`."""
    return _declare("array", versions, default, nullable=nullable, tag=tag, of=of)  # type: ignore[no-any-return]


REQUESTS: dict[int, type[Message]] = {}
"""The requests whose modules have been imported, by API key."""

RESPONSES: dict[int, type[Message]] = {}
"""The responses whose modules have been imported, by API key."""


@dataclass_transform(eq_default=True)
class StructType(type):
    """Turns a class's fields into slots, and stores the arguments of a message's class statement."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **about: Any) -> StructType:
        """Create the class, moving its fields out of the namespace."""
        fields = tuple(value for value in namespace.values() if isinstance(value, Field))
        for key in [key for key, value in namespace.items() if isinstance(value, Field)]:
            namespace.pop(key).name = key
        return super().__new__(
            mcs, name, bases, {**namespace, "__slots__": tuple(field.name for field in fields), "FIELDS": fields}
        )

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **about: Any) -> None:
        """Store the versions and the API's name and key; stored records have no API."""
        super().__init__(name, bases, namespace)
        if about:
            versions = parse_versions(about["versions"])
            message: Any = cls
            message.API_NAME = about.get("api", name)
            message.API_KEY = about.get("key", -1)
            message.VERSIONS = range(versions.first, versions.last + 1)
            message.FIRST_FLEXIBLE = parse_versions(about.get("flexible")).first
            if name.endswith("Request"):
                REQUESTS[message.API_KEY] = message
            elif name.endswith("Response"):
                RESPONSES[message.API_KEY] = message


class Struct(metaclass=StructType):
    """A part of a message with the fields that its class declares."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Compile the constructor of the instance's class, which replaces this method."""
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        self.__init__(*args, **kwargs)  # type: ignore[misc]

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if value != field.make_default():
                shown.append(f"{field.name}={_shown_records(value) if field.kind == 'records' else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request or a response; without an API, a record that a coordinator stores."""

    API_NAME: ClassVar[str]
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    """The versions that are declared. The broker decides which of these versions it serves."""
    FIRST_FLEXIBLE: ClassVar[int]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Return whether a version uses compact lengths and tagged fields. True for later unknown versions as well."""
        return version >= cls.FIRST_FLEXIBLE

    @classmethod
    def check_version(cls, version: int) -> None:
        """Raise InvalidArgumentError for a version that is not declared."""
        if version not in cls.VERSIONS:
            raise InvalidArgumentError(
                f"{cls.__name__} has no version {version}", expected=f"{cls.VERSIONS[0]} to {cls.VERSIONS[-1]}"
            )


def _shown_records(value: Any) -> str:
    chunks = value if isinstance(value, list | tuple) else [value]
    return f"<{sum(len(chunk) for chunk in chunks)} bytes>"


def _compile_constructor(cls: type[Struct]) -> Callable[..., None]:
    namespace: dict[str, Any] = {"ABSENT": object()}
    parameters, body = ["self"], []
    for index, field in enumerate(cls.FIELDS):
        value = field.name
        if field.kind in ("array", "struct") and field.default is not None:
            # Each instance gets its own list or struct.
            fresh = "[]" if field.kind == "array" else f"MAKE{index}()"
            namespace[f"MAKE{index}"] = field.of
            parameters.append(f"{field.name}=ABSENT")
            value = f"{fresh} if {field.name} is ABSENT else {field.name}"
        else:
            namespace[f"DEFAULT{index}"] = field.default
            parameters.append(f"{field.name}=DEFAULT{index}")
        body.append(f"    self.{field.name} = {value}\n")
    source = f"def __init__({', '.join(parameters)}):\n{''.join(body) or '    pass'}\n"
    return compiled(source, "__init__", f"constructor of {cls.__name__}", namespace)
