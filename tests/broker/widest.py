"""For each API the requests with the most elements: one for each array that a version's request has, made from its declaration.

So an API that is added has its own without a word here. Where there are arrays in arrays, one request has one outer element with
`count` inner ones, another `count` outer ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.broker.produce_helpers import message_set
from tidelog.broker.handling.api import Api
from tidelog.wire.codec import Message
from tidelog.wire.fields import Field, Struct
from tidelog.wire.messages.delete_topics import DeleteTopicState
from tidelog.wire.messages.fetch import FetchTopic


class Widest(NamedTuple):
    """A request, and the array of it that is wide."""

    what: str
    version: int
    make: Callable[[], Message]


Name = Callable[[type, Field, int], Any]
"""What a field of a struct's `number`th element holds; None: its default."""


def requests(api: Api, count: int, value: Name) -> Iterator[Widest]:
    """Yield them all, of the versions between which the arrays differ: the newest that has each."""
    seen: set[tuple[str, ...]] = set()
    for version in range(api.served.last, api.served.first - 1, -1):
        for path in _paths(api.request, version):
            names = tuple(field.name for field in path)
            if names not in seen:
                seen.add(names)
                make = lambda version=version, path=path: _made(api.request, version, path, count, value, 0)  # noqa: E731
                yield Widest(f"{api.request.API_NAME} v{version}: {count:,} {'.'.join(names)}", version, make)


def _paths(struct: Any, version: int) -> Iterator[tuple[Field, ...]]:
    for field in struct.FIELDS:
        if field.kind == "array" and version in field.versions:
            yield (field,)
            if hasattr(field.of, "FIELDS"):
                for inner in _paths(field.of, version):
                    yield (field, *inner)


def _made(struct: Any, version: int, path: tuple[Field, ...], count: int, value: Name, number: int) -> Any:
    wanted: dict[str, Any] = {}
    for field in struct.FIELDS:
        if version not in field.versions:
            continue
        if path and field is path[0]:
            times = count if len(path) == 1 else 1
            if hasattr(field.of, "FIELDS"):
                wanted[field.name] = [_made(field.of, version, path[1:], count, value, i) for i in range(times)]
            else:
                wanted[field.name] = [value(struct, field, i) for i in range(times)]
        elif field.kind == "array":
            # What nobody asked for is none of it, or as little as there can be.
            if hasattr(field.of, "FIELDS") and not path:
                wanted[field.name] = [_made(field.of, version, (), count, value, number)]
            elif not path and field.default is not None and version not in field.nullable:
                wanted[field.name] = [value(struct, field, number)]
        else:
            given = value(struct, field, number)
            if given is not None:
                wanted[field.name] = given
    return struct(**wanted)


def about(topic: str, topic_id: uuid.UUID) -> Name:
    """Return what requests about a topic, a group `g` and a transaction `id` hold."""
    texts = {"group_id": "g", "transactional_id": "id", "v3_and_below_transactional_id": "id", "key": "g"}
    numbers = {"acks": 1, "resource_type": 2, "validate_only": False, "timeout_ms": 1000, "replica_id": -1, "session_epoch": -1}

    def value(struct: type, field: Field, number: int) -> Any:
        if field.name in texts:
            return texts[field.name]
        if field.name in numbers:
            return numbers[field.name]
        if struct is FetchTopic and field.name == "topic_id":
            return topic_id
        kind = field.of.__name__ if field.kind == "array" else field.kind
        if kind == "string":
            return None if field.kind == "string" and field.default is None and struct is not DeleteTopicState else topic
        if kind == "data":
            return b"x"
        if field.kind == "records":
            return message_set(2)
        return 0 if field.kind == "array" else None

    return value


def plain(api: Api, value: Name) -> Message:
    """Return the newest request of an API without arrays."""
    given = {}
    for field in api.request.FIELDS:
        if api.served.last in field.versions:
            one = True if field.name.startswith("include_") else value(api.request, field, 0)
            if one is not None:
                given[field.name] = one
    return api.request(**given)


def codes_of(struct: Any) -> list[int]:
    """Return the error codes of a response, of its structs to the deepest."""
    found = []
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, Struct):
                    found += codes_of(one)
    return found
