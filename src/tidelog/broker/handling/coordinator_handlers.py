"""Wraps the handlers of the coordinators' APIs, whose responses wait for disks and other replicas.

| a request | what happens |
|---|---|
| needs a coordinator's topic that is missing | it is handled again once the topic is created (`StateLog.check_there`) |
| has written or read uncommitted records | it is answered once they are committed |
| ... but another broker leads, too few replicas are in sync, or a timeout occurs | it gets the error for a missing coordinator |
| ... but the disk fails | its connection is closed without a response, because the result is unknown |
| ... but they cannot be committed, and the request is wide | its connection is closed, because its content is already discarded |

So no client sees state that another leader might not have. Records are committed once the in-sync replicas have them and, if
`log.flush.interval.messages` is set, they are flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import Any, TypeVar, cast

from tidelog.broker.coordinators.append_refusals import refusal_of
from tidelog.broker.coordinators.state_log import StateLog, TopicMissingError
from tidelog.broker.handling.api import Handler, UsualHandler
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request, Wide
from tidelog.broker.requests.slices import Work
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode

T = TypeVar("T")

_Call = Callable[[Callable[[], Any]], Any]


def by_groups(handle: Handler, *, waits: bool = True) -> Handler:
    """Wrap a handler that reads or changes groups: create ``__consumer_offsets`` if it is missing, and with `waits` delay the
    response until the records are committed.
    """
    return _Coordinated(lambda node: node.groups.log, handle, waits=waits)


def by_transactions(handle: Handler) -> Handler:
    """Wrap a handler that changes transactions: create ``__transaction_state`` if it is missing, and delay the response until
    the records are committed.
    """
    return _Coordinated(lambda node: node.transactions.log, handle, waits=True)


def usual_by_groups(answer: UsualHandler, *, waits: bool = True) -> UsualHandler:
    """Wrap an `answer_usual` for requests about groups. With `waits`, it returns None if the response has to wait until records
    are committed. So the handler does everything again: `answer` may have changed only what can be repeated.
    """

    def answered(node: Node, request: Request, row: list[Any]) -> Any:
        uncommitted = node.groups.log.uncommitted
        uncommitted.clear()
        try:
            result = answer(node, request, row)
        except TopicMissingError:
            return None
        return None if uncommitted and waits else result

    return answered


class _Coordinated:
    """A wrapped handler of a coordinator's API."""

    def __init__(self, log_of: Callable[[Node], StateLog], handle: Handler, *, waits: bool) -> None:
        self._log_of = log_of
        self._handle = handle
        self._waits = waits

    def __call__(self, node: Node, message: Any, request: Request) -> Message | Wide | Outcome | Work:
        log = self._log_of(node)
        kept = message if node.slices.when_over is None else None
        if log.uncommitted:
            log.uncommitted.clear()
        try:
            answer = self._handle(node, message, request)
            if isinstance(answer, Generator):
                # Small requests run in one step, without the objects that slices need.
                work = answer
                try:
                    wanted = node.slices.first_step(work)
                except StopIteration as end:
                    answer = end.value
                else:
                    return self._sliced(node, message, kept, request, log, work, wanted)
        except TopicMissingError:
            return self._made_first(node, message, kept, request, log)
        return self._held(node, kept, request, log, answer, log.uncommitted) if log.uncommitted else answer

    def _sliced(self, node: Node, message: Any, kept: Any, request: Request, log: StateLog, work: Work, wanted: object) -> Work:
        """Run the rest of a handler in slices, after a first step that has yielded `wanted`. Hold its response until the
        records are committed. Between slices other requests may write, and the topic may be deleted.

        `kept` is the request's message; None if the work discards the message.
        """
        uncommitted = set(log.uncommitted)
        log.uncommitted.clear()
        try:
            answer = yield from _noting(log, work, uncommitted, _at_once, lambda: wanted)
        except TopicMissingError:
            return (yield from self._made_first(node, message, kept, request, log))
        return self._held(node, kept, request, log, answer, uncommitted) if uncommitted else answer

    def _made_first(self, node: Node, message: Any, kept: Any, request: Request, log: StateLog) -> Work:
        code = yield from log.ensuring()
        return (yield from self._called(node, message, kept, request, log, code))

    def _called(self, node: Node, message: Any, kept: Any, request: Request, log: StateLog, code: ErrorCode) -> Work:
        """Call the handler. If `code` is not NONE, the handler answers as if the coordinator were unavailable, with that code."""
        call: _Call = _at_once if code is ErrorCode.NONE else partial(log.refusing, code)
        log.uncommitted.clear()
        answer = call(partial(self._handle, node, message, request))
        uncommitted = set(log.uncommitted)
        if isinstance(answer, Generator):
            answer = yield from _noting(log, answer, uncommitted, call, partial(answer.send, None))
        return self._held(node, kept, request, log, answer, uncommitted) if uncommitted else answer

    def _held(
        self,
        node: Node,
        kept: Any,
        request: Request,
        log: StateLog,
        answer: Message | Wide | Outcome,
        uncommitted: Collection[int],
    ) -> Message | Wide | Outcome:
        """Delay the response until the records that the handler has read or written are committed. If they already are,
        return it.
        """
        partitions = list(uncommitted)
        log.uncommitted.clear()
        if answer is Outcome.LATER or not self._waits:
            return answer  # The code that sends the response later checks this value.
        left, failed = len(partitions) + 1, ErrorCode.NONE

        def committed(code: ErrorCode) -> None:
            nonlocal left, failed
            left -= 1
            failed = code if failed is not ErrorCode.KAFKA_STORAGE_ERROR and code else failed
            if not left:
                if failed is ErrorCode.KAFKA_STORAGE_ERROR or (failed and kept is None):
                    request.respond(Outcome.CLOSE)
                elif failed:
                    node.slices.go_on(request, self._called(node, kept, kept, request, log, refusal_of(failed)))
                else:
                    request.respond(answer)

        for partition in partitions:
            log.when_committed(partition, committed)
        if left == 1 and not failed:
            return answer  # Everything has been committed in the meantime.
        committed(ErrorCode.NONE)
        return Outcome.LATER


def _at_once(step: Callable[[], T]) -> T:
    return step()


def _noting(log: StateLog, work: Work, uncommitted: set[int], call: _Call, step: Callable[[], Any]) -> Work:
    """Run `work`, starting with `step`; `call` runs each step. Add to `uncommitted` the partitions whose uncommitted records the
    work has read or written.
    """
    while True:
        log.uncommitted.clear()
        try:
            wanted = call(step)
        except StopIteration as end:
            return cast("Message | Wide | Outcome", end.value)
        finally:
            uncommitted |= log.uncommitted
            log.uncommitted.clear()
        try:
            step = partial(work.send, (yield wanted))
        except Exception as error:
            step = partial(work.throw, error)
