"""An API of the broker: its messages, the served versions, and the handler.

A module of `apis/` defines one, as `API`::

    SERVED = Versions(0, 11)
    ACCESS = each(Operation.WRITE, ResourceType.TOPIC, …)
    ...
    API = Api(ProduceRequest, ProduceResponse, SERVED, ACCESS, handle)

`ACCESS` is the access check before the handler runs (`authorization.access`); it is `NOTHING` only for APIs that need no
authentication.

`handle(node, message, request)` is called on the loop's thread and must not block. It returns the response, or

| | |
|---|---|
| `Outcome.LATER` | `request.respond(response)` will be called, once; the connection reads nothing further until then |
| `Outcome.NOTHING` | no response is ever sent (Produce with acks=0) |
| `Outcome.CLOSE` | the connection is closed without a response |
| `Wide(response)` | the response is so large that it is encoded on another thread |
| a generator | the work grows with the request or the broker's state: it runs in `slices`, and returns any of these |

A handler that loops over anything is a generator: `tests/broker/test_widest.py` sends each API its widest requests.

A request's record bytes are in the connection's receive buffer: they may be read and changed until `handle` returns. A handler
that needs them later must copy them.

A handler answers expected errors with Kafka's error codes. If it raises anything else, `Dispatcher` logs that and closes the
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tidelog.broker.authorization.access import Access
    from tidelog.broker.node import Node
    from tidelog.broker.server.request import Answer, Outcome, Request
    from tidelog.broker.server.slices import Work
    from tidelog.wire.codec import Message
    from tidelog.wire.fields import Versions

UsualHandler: TypeAlias = "Callable[[Node, Request, memoryview, int, int], bytes | Message | Outcome | None]"

Handler: TypeAlias = "Callable[[Node, Any, Request], Answer | Work]"


class Api(NamedTuple):
    """One row of the table of APIs. The key is the request's."""

    request: type[Message]
    response: type[Message]
    served: Versions
    """The table in the messages' module of `wire.messages`, and only there, lists the changes of each version."""
    access: Access
    """The operations that the authorizer must allow, if the broker has one."""
    handle: Handler
    answer_usual: UsualHandler | None = None
    """Answers a request from its bytes, if that is faster; None for all others, which are decoded and handled."""

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.request.API_NAME
