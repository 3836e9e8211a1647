"""Automatic topic creation: topics are requested from the controller, as in Kafka's DefaultAutoTopicCreationManager.

| requested by | sent | purpose |
|---|---|---|
| a client's Metadata | in an Envelope with the client's address and principal | the controller authorizes the client |
| a coordinator, for its own topic | as this broker's own request | |

No client waits for the controller: clients get UNKNOWN_TOPIC_OR_PARTITION or COORDINATOR_NOT_AVAILABLE and retry. A topic is not
requested again before the controller has answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from tidelog.broker.loop.owned_tasks import OwnedTasks
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.request import Request
from tidelog.errors import TidelogError
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger("tidelog.broker")

VERSION = 7
"""The version of CreateTopics. Every KRaft controller supports this version."""

MAX_ASKED = 10_000
"""The most topics requested at a time; further ones are requested when a client retries."""

TIMEOUT_S = 30.0

LINES = 20
"""The most log lines per minute about refused topics."""

_EXPECTED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class TopicCreation:
    """Requests topics from the controller. Use only on the event loop's thread."""

    def __init__(self, plane: MetadataPlane, creatable: Callable[[str], CreatableTopic]) -> None:
        """`creatable` returns the creation request for a topic's name."""
        self._plane = plane
        self._creatable = creatable
        self._asked: set[str] = set()
        self._tasks = OwnedTasks()
        self._log = RetryLog(logger, LINES)

    def ask(self, names: Iterable[str], client: Request) -> None:
        """Request topics on behalf of a client, with the correlation id and client id of the client's request."""
        topics = [self._creatable(name) for name in self._not_asked(names)]
        message = CreateTopicsRequest(topics, timeout_ms=int(TIMEOUT_S * 1000))
        chunks = request_chunks(message, VERSION, client.correlation_id, client.client_id)

        host, principal = client.peer_host, client.principal

        async def forwarded() -> CreateTopicsResponse:
            frame = b"".join(chunks)[4:]
            answer = await self._plane.forward(frame, client_host=host, principal=principal, timeout_s=TIMEOUT_S)
            return read_response(CreateTopicsResponse, VERSION, answer)[1]

        self._begin([one.name for one in topics], forwarded)

    def ask_own(self, name: str) -> None:
        """Request a topic that the broker itself needs."""
        names = self._not_asked((name,))
        message = CreateTopicsRequest([self._creatable(name) for name in names], timeout_ms=int(TIMEOUT_S * 1000))
        self._begin(names, lambda: self._plane.call(message, timeout_s=TIMEOUT_S))

    def stop(self) -> None:
        self._tasks.cancel()

    # --- inside

    def _not_asked(self, names: Iterable[str]) -> list[str]:
        """Return the topics that are not requested yet, up to the limit, and mark them as requested."""
        new = [name for name in names if name not in self._asked][: MAX_ASKED - len(self._asked)]
        self._asked.update(new)
        return new

    def _begin(self, names: Collection[str], send: Callable[[], Awaitable[CreateTopicsResponse]]) -> None:
        if not names:
            return

        async def asked() -> None:
            try:
                answer = await send()
            except TidelogError as error:
                self._log.failed("could not create %d missing topics, such as %s: %s", len(names), first, error)
                return
            finally:
                self._asked.difference_update(names)
            for one in answer.topics:
                if one.error_code not in _EXPECTED:
                    reason = one.error_message or code_name(one.error_code)
                    self._log.failed("could not create the missing topic %s: %s", one.name, reason)

        first = next(iter(names))
        self._tasks.begin(asked(), "tidelog-topic-creation")
