"""An API of the broker: its messages, the served versions, the access check, and the handler.

Each module of `apis/` defines one API, as `API`::

    ACCESS = each(Operation.WRITE, ResourceType.TOPIC, …)
    ...
    API = Api(ProduceRequest, ProduceResponse, Versions(0, 11), ACCESS, handle)

`ACCESS` is the access check before the handler runs (`handling.access`); it is `NOTHING` only for APIs that clients use
before they authenticate.

`handle(node, message, request)` is called on the event loop's thread and must not block. It returns the response, or

| | |
|---|---|
| `Outcome.LATER` | `request.respond(response)` will be called, once; the connection reads nothing further until then |
| `Outcome.NOTHING` | no response is ever sent (Produce with acks=0) |
| `Outcome.CLOSE` | the connection is closed without a response |
| `Wide(response)` | the response is so large that it is encoded on another thread |
| a generator | for work that grows with the request or the broker's state; it runs in `slices`, and returns any of these |

A handler that contains a loop is a generator: `tests/broker/test_widest.py` sends each API its widest requests.

A request's record bytes are in the connection's receive buffer. They may be read and changed until `handle` returns. A handler
that needs the bytes later must copy them.

A handler returns Kafka's error codes for expected errors. If it raises an exception, `Dispatcher` logs that and closes the
connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeAlias

from tidelog.broker.handling.access import Access
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Answer, Request
from tidelog.broker.requests.slices import Work
from tidelog.wire.codec import Message
from tidelog.wire.fields import Versions

UsualHandler: TypeAlias = "Callable[[Node, Request, list[Any]], list[Any] | Answer | Work | None]"

Handler: TypeAlias = "Callable[[Node, Any, Request], Answer | Work]"


class Api(NamedTuple):
    """One API that the broker can serve. Its API key is `request.API_KEY`."""

    request: type[Message]
    response: type[Message]
    served: Versions
    """The versions served here. The API's module in `wire.messages` lists the changes of each version."""
    access: Access
    """The operations that the authorizer must allow, if the broker has one."""
    handle: Handler
    answer_usual: UsualHandler | None = None
    """Answers usual requests without message objects (see `dispatch.usual_api`); None for most APIs. It gets the request's
    fields as a list, and returns the response's fields as a list, or what `handle` returns. For a request that must be decoded,
    it returns None before it has changed anything.
    """

    @property
    def name(self) -> str:
        """The API's name in Kafka, such as Produce."""
        return self.request.API_NAME


def apis_in(package: str, path: Iterable[str]) -> tuple[Api, ...]:
    """Return the `API` of each module of a package, by the package's name and `__path__`."""
    return tuple(import_module(f"{package}.{module.name}").API for module in iter_modules(path))
