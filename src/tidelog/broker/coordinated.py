"""Handlers of coordinators' APIs: they wait for disks as any request does, while all others are served.

| a request | |
|---|---|
| whose coordinator's topic is missing | waits until that is made, then its handler is called once more (`StateLog.check_there`) |
| whose handler has written what is to be flushed (`log.flush.interval.messages`) | is answered once that is on the disk |

If the disk refuses, the partition is offline and the connection is closed: what became of the change the client asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.api import Handler, Outcome, Request, Wide
from tidelog.broker.server.slices import Work
from tidelog.broker.state_log import StateLog, TopicMissingError
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.wire.codec import Message


def by_groups(handle: Handler) -> Handler:
    """A handler that reads or changes groups."""
    return _coordinated(lambda node: node.groups.log, handle)


def by_transactions(handle: Handler) -> Handler:
    """A handler that changes transactions."""
    return _coordinated(lambda node: node.transactions.log, handle)


def _coordinated(log_of: Callable[[Node], StateLog], handle: Handler) -> Handler:
    def handled(node: Node, message: Any, request: Request) -> Message | Wide | Outcome:
        log = log_of(node)
        if log.unflushed:
            log.unflushed.clear()
        try:
            answer = handle(node, message, request)
        except TopicMissingError:
            return node.slices.answer(request, _made_first(node, message, request, log, handle))
        return _held(log, request, answer) if log.unflushed else answer

    return handled


def _made_first(node: Node, message: Any, request: Request, log: StateLog, handle: Handler) -> Work:
    code = yield from log.ensuring()
    log.unflushed.clear()
    answer = (
        handle(node, message, request) if code is ErrorCode.NONE else log.without_topic(partial(handle, node, message, request))
    )
    return _held(log, request, answer) if log.unflushed else answer


def _held(log: StateLog, request: Request, answer: Message | Wide | Outcome) -> Message | Wide | Outcome:
    """Have the request answered once what its handler has written is on the disk."""
    partitions = list(log.unflushed)
    log.unflushed.clear()
    if answer is Outcome.LATER:
        return answer  # Who answers it knows what that stands for.
    left, has_any_failed = len(partitions), False

    def flushed(has_failed: bool) -> None:
        nonlocal left, has_any_failed
        left -= 1
        has_any_failed |= has_failed
        if not left:
            request.respond(Outcome.CLOSE if has_any_failed else answer)

    for partition in partitions:
        log.when_flushed(partition, flushed)
    return Outcome.LATER
