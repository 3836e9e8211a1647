"""The access check of an API before its handler is called. Each module of `apis/` declares it::

    ACCESS = each(Operation.DELETE, ResourceType.GROUP, of="groups_names", refused=_refused, response=…, into="results")

| form | the handler |
|---|---|
| `NOTHING` | is called for every client |
| `whole` | is called if the client is authorized for all listed operations; otherwise the request is refused |
| `each` | gets the permitted elements of an array; the others are refused in the same response |
| `of_configs` | is `each` for the resources of the configuration APIs |
| `Access(what)` | makes the checks itself, element by element, and leaves out what the client may not see |
| `Access(what, gate)` | any other check |

A gate gets an `Asker` and the decoded request. It returns None if everything is allowed. Otherwise it returns the response to
send, or a function that amends the handler's response. It may remove elements from the request. It runs on any thread, changes
nothing else, and does not block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tidelog.broker.authorization.permissions import Permissions
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Answer, Outcome, Request, Wide
from tidelog.security.acl import ALL_OPERATIONS, CLUSTER_NAME, Operation, ResourceType
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode

_TOPIC = 2
_OF_CLUSTER = (4, 8, 16, 32)
"""Types of configured resources that require authorization for the cluster: brokers, their loggers, client metrics subscriptions,
groups.
"""

_FAILED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

_WHY = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def why(code: ErrorCode) -> str:
    """Return Kafka's message for an authorization error. For any other code, such as that of an injected fault, return the
    code's name.
    """
    return _WHY.get(code, code.name)


class Asker:
    """Checks the authorization of one request on the node that received it."""

    __slots__ = ("node", "permissions", "request")

    def __init__(self, node: Node, permissions: Permissions, request: Request) -> None:
        self.node = node
        self.permissions = permissions
        self.request = request

    def may(
        self,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
        log_allowed: bool = True,
        count: int = 1,
    ) -> bool:
        """Whether the request's sender may perform an operation on the resource with this name. `count` is how often the request
        names it, for the log.
        """
        return self.permissions.may(
            self.request, operation, kind, name, log_denied=log_denied, log_allowed=log_allowed, count=count
        )

    def may_cluster(self, operation: Operation, *, log_denied: bool = True) -> bool:
        """Whether the request's sender may perform an operation on the cluster."""
        return self.permissions.may_cluster(self.request, operation, log_denied=log_denied)

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the request's sender may perform an operation on at least one possible resource of this type."""
        return self.permissions.may_any(self.request, operation, kind)

    def code(self, kind: ResourceType) -> ErrorCode:
        """Return the code of an authorization error for this type of resource."""
        return _FAILED[kind]


Amend: TypeAlias = "Callable[[Any], Message | Outcome]"
"""A function that amends a handler's response. If the request gets no response (acks=0), the function gets Outcome.NOTHING."""

Gate: TypeAlias = "Callable[[Asker, Any], Message | Outcome | Amend | None]"


class Access(NamedTuple):
    """The access check of an API: a description, and the function that makes the check. If `gate` is None, nothing is checked
    before the handler is called. The handler makes its own checks, if any.
    """

    what: str
    gate: Gate | None = None


NOTHING = Access("nothing")
"""For APIs that are used before authentication."""


class Right(NamedTuple):
    """An operation on a resource, which must be authorized. `name` is the request's field with the resource's name; None for
    the cluster.
    """

    operation: Operation
    kind: ResourceType
    name: str | None = None

    def __str__(self) -> str:
        whose = "" if self.name is None else f" ({self.name})"
        return f"{self.operation.name} on {self.kind.name}{whose}"


def cluster(operation: Operation) -> Right:
    return Right(operation, ResourceType.CLUSTER)


def whole(*rights: Right, refused: Callable[[Any, ErrorCode], Message]) -> Access:
    """Return an `Access` that requires all of these rights. `refused` makes the error response from the request and the error
    code.
    """

    def gate(asker: Asker, message: Any) -> Message | None:
        for operation, kind, name in rights:
            if not asker.may(operation, kind, CLUSTER_NAME if name is None else getattr(message, name) or ""):
                return refused(message, asker.code(kind))
        return None

    return Access(", ".join(map(str, rights)), gate)


def at_top(response: Callable[..., Message]) -> Callable[[Any, ErrorCode], Message]:
    """Return a function for `whole` that makes an error response with the code in its top-level `error_code`."""
    return lambda message, code: response(error_code=code)


def each(
    operation: Operation,
    kind: ResourceType,
    *,
    of: str,
    refused: Callable[[Any, ErrorCode], Any],
    response: Callable[..., Message],
    into: str,
    name: str | None = None,
    unless: Callable[[Counter[str], str], bool] | None = None,
    asks_for_none: bool = False,
) -> Access:
    """Return an `Access` that checks each element of the request's array `of`. The resource's name is the element, or its field
    `name`.

    `refused` makes the result of a refused element, which is added to the response's array `into`. If all elements are refused,
    the handler is not called. With `asks_for_none` the handler is called even then, and if it fails the whole request, its error
    replaces the refusals. `unless` gets the counts of all names and one name. It returns True for a name that need not be
    checked, because the handler refuses it anyway.
    """

    def gate(asker: Asker, message: Any) -> Message | Amend | None:
        elements = getattr(message, of) or ()
        names = Counter(one if name is None else getattr(one, name) for one in elements)
        asked = names if unless is None else {one: count for one, count in names.items() if not unless(names, one)}
        denied = refusals(asker, operation, kind, asked)
        if not denied:
            return None
        answers, left = [], []
        for one in elements:
            if (one if name is None else getattr(one, name)) in denied:
                answers.append(refused(one, asker.code(kind)))
            else:
                left.append(one)
        if not left and not asks_for_none:
            return response(**{into: answers})
        setattr(message, of, left)
        return appending(into, answers, unless_failed=asks_for_none)

    return Access(f"{operation.name} on each {kind.name}", gate)


def named_twice(names: Counter[str], name: str) -> bool:
    """Whether a request names the resource `name` more than once. It is passed to `each` as `unless`."""
    return names[name] > 1


def refusals(asker: Asker, operation: Operation, kind: ResourceType, names: Mapping[str, int]) -> set[str]:
    """Return the names for which the operation is denied. `names` maps each name to the number of times that the request
    names it.
    """
    return {name for name, count in names.items() if not asker.may(operation, kind, name, count=count)}


def may(
    node: Node, request: Request, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME, *, log_denied: bool = True
) -> bool:
    """Whether a request's sender may perform an operation on a resource: always, without an authorizer."""
    permissions = node.permissions
    return permissions is None or permissions.may(request, operation, kind, name, log_denied=log_denied)


def may_each(node: Node, request: Request, operation: Operation, kind: ResourceType, names: Iterable[str]) -> bool:
    """Whether a request's sender may perform an operation on each of these resources. Nothing is logged here: either the access
    check of the decoded request logs the result, or `note_allowed` does.
    """
    permissions = node.permissions
    return permissions is None or all(
        permissions.may(request, operation, kind, name, log_denied=False, log_allowed=False) for name in names
    )


def note_allowed(node: Node, request: Request, operation: Operation, kind: ResourceType, names: Iterable[str]) -> None:
    """Log the operations that `may_each` has allowed."""
    if node.permissions is not None and node.permissions.logs_allowed:
        for name in names:
            node.permissions.may(request, operation, kind, name)


def allows(node: Node, request: Request, *rights: tuple[Operation, ResourceType, Iterable[str]]) -> bool:
    """Whether a request's sender may perform these operations on these resources. Only a positive result is logged (see
    `may_each`).
    """
    if node.permissions is None:
        return True
    if not all(may_each(node, request, *right) for right in rights):
        return False
    for right in rights:
        note_allowed(node, request, *right)
    return True


def operations_of(node: Node, request: Request, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return a bit field of the operations that a request's sender may perform on a resource; all operations without an
    authorizer.
    """
    permissions = node.permissions
    return ALL_OPERATIONS[kind] if permissions is None else permissions.operations(request, kind, name)


def appending(into: str, answers: list[Any], *, unless_failed: bool = False) -> Amend:
    """Return a function that adds `answers` to the array `into` of a response. With `unless_failed`, a response with a
    top-level error is left unchanged.
    """

    def amend(response: Any) -> Message | Outcome:
        if not isinstance(response, Outcome) and not (unless_failed and response.error_code):
            getattr(response, into).extend(answers)
        return response  # type: ignore[no-any-return]

    return amend


def first(*accesses: Access) -> Access:
    """Return an `Access` that runs several checks in order. Only the last one may amend the response."""
    gates = [one.gate for one in accesses if one.gate is not None]

    def gate(asker: Asker, message: Any) -> Message | Outcome | Amend | None:
        for one in gates:
            verdict = one(asker, message)
            if verdict is not None:
                return verdict
        return None

    return Access("; ".join(one.what for one in accesses), gate)


def unless_cluster(operation: Operation, access: Access) -> Access:
    """Return an `Access` that is skipped if the request's sender may perform `operation` on the cluster."""
    inner = access.gate
    assert inner is not None

    def gate(asker: Asker, message: Any) -> Message | Outcome | Amend | None:
        return None if asker.may_cluster(operation, log_denied=False) else inner(asker, message)

    return Access(f"{operation.name} on CLUSTER, or {access.what}", gate)


def amended(amend: Amend, answer: Answer) -> Answer:
    """Return a handler's result with its response amended. LATER and CLOSE are returned unchanged."""
    if answer is Outcome.LATER or answer is Outcome.CLOSE:
        return answer
    if isinstance(answer, Wide):
        response = amend(answer.response)
        return response if isinstance(response, Outcome) else answer._replace(response=response)
    return amend(answer)


def of_configs(operation: Operation, *, refused: Callable[..., Any], response: Callable[..., Message], into: str) -> Access:
    """Return the `Access` of a configuration API. It checks each of the request's `resources`: a topic's configuration requires
    authorization for the topic, any other for the cluster. The handler refuses unknown types.

    `refused` makes the result of a refused resource, which is added to the response's array `into`.
    """

    def gate(asker: Asker, message: Any) -> Message | Amend | None:
        answers, left = [], []
        for one in message.resources:
            kind = ResourceType.TOPIC if one.resource_type == _TOPIC else ResourceType.CLUSTER
            name = one.resource_name if kind is ResourceType.TOPIC else CLUSTER_NAME
            if one.resource_type not in (_TOPIC, *_OF_CLUSTER) or asker.may(operation, kind, name):
                left.append(one)
            else:
                code = asker.code(kind)
                answers.append(
                    refused(
                        error_code=code,
                        error_message=why(code),
                        resource_type=one.resource_type,
                        resource_name=one.resource_name,
                    )
                )
        if not answers:
            return None
        if not left:
            return response(**{into: answers})
        message.resources = left
        return appending(into, answers)

    return Access(f"{operation.name} on each TOPIC, on CLUSTER for all else", gate)
