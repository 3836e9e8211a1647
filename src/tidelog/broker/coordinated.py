"""Handlers of coordinators' APIs: they wait for disks as any request does, while all others are served.

| a request | |
|---|---|
| whose coordinator's topic is missing | waits until that is made, then its handler is called once more (`StateLog.check_there`) |
| whose handler has written what is to be flushed (`log.flush.interval.messages`) | is answered once that is on the disk |

If the disk refuses, the partition is offline and the connection is closed: what became of the change the client asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.broker.api import Handler, Outcome, Request, Wide
from tidelog.broker.server.slices import Work
from tidelog.broker.state_log import StateLog, TopicMissingError
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.node import Node
    from tidelog.wire.codec import Message

T = TypeVar("T")


def by_groups(handle: Handler) -> Handler:
    """A handler that reads or changes groups."""
    return _coordinated(lambda node: node.groups.log, handle)


def by_transactions(handle: Handler) -> Handler:
    """A handler that changes transactions."""
    return _coordinated(lambda node: node.transactions.log, handle)


def _coordinated(log_of: Callable[[Node], StateLog], handle: Handler) -> Handler:
    def handled(node: Node, message: Any, request: Request) -> Message | Wide | Outcome | Work:
        log = log_of(node)
        if log.unflushed:
            log.unflushed.clear()
        try:
            answer = handle(node, message, request)
        except TopicMissingError:
            return _made_first(node, message, request, log, handle)
        if isinstance(answer, Generator):
            return _sliced(node, message, request, log, handle, answer)
        return _held(log, request, answer, log.unflushed) if log.unflushed else answer

    return handled


def _sliced(node: Node, message: Any, request: Request, log: StateLog, handle: Handler, work: Work) -> Work:
    """The same for a handler that works in slices: others may write in between, and the topic may go."""
    unflushed: set[int] = set()
    try:
        answer = yield from _noting(log, work, unflushed, _at_once)
    except TopicMissingError:
        return (yield from _made_first(node, message, request, log, handle))
    return _held(log, request, answer, unflushed) if unflushed else answer


def _made_first(node: Node, message: Any, request: Request, log: StateLog, handle: Handler) -> Work:
    code = yield from log.ensuring()
    call: Callable[[Callable[[], Any]], Any] = _at_once if code is ErrorCode.NONE else log.without_topic
    log.unflushed.clear()
    answer = call(partial(handle, node, message, request))
    unflushed = set(log.unflushed)
    if isinstance(answer, Generator):
        answer = yield from _noting(log, answer, unflushed, call)
    return _held(log, request, answer, unflushed) if unflushed else answer


def _at_once(step: Callable[[], T]) -> T:
    return step()


def _noting(log: StateLog, work: Work, unflushed: set[int], call: Callable[[Callable[[], Any]], Any]) -> Work:
    """Do a work by `call`, step by step, and add the partitions that it writes to, and that are to be flushed, to `unflushed`."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        log.unflushed.clear()
        try:
            wanted = call(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            unflushed |= log.unflushed
            log.unflushed.clear()
        try:
            step = partial(work.send, (yield wanted))
        except Exception as error:
            step = partial(work.throw, error)


def _held(
    log: StateLog, request: Request, answer: Message | Wide | Outcome, unflushed: Collection[int]
) -> Message | Wide | Outcome:
    """Have the request answered once what its handler has written is on the disk."""
    partitions = list(unflushed)
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
