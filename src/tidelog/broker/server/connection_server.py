"""The interface of the server that a connection uses."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.broker.dispatch.dispatcher import Dispatcher
from tidelog.broker.loop.event_loop import LoopThreads
from tidelog.broker.loop.rate_limited_log import RateLimitedLog
from tidelog.broker.net.answer_rounds import AnswerRounds
from tidelog.broker.net.bulk_sender import BulkSender
from tidelog.broker.net.read_buffers import ReadBuffers
from tidelog.broker.net.tls_socket import TlsSocket
from tidelog.broker.net.turns import Turns
from tidelog.broker.node import Node


class ConnectionServer(Protocol):
    """A server as its connections see it: the state that they share."""

    node: Node
    loop: asyncio.AbstractEventLoop
    dispatcher: Dispatcher
    buffers: ReadBuffers
    turns: Turns
    answers: AnswerRounds
    bulk: BulkSender
    handshakes: LoopThreads
    shaking: set[TlsSocket]
    limited_log: RateLimitedLog
    max_request_bytes: int

    def forget(self, connection_id: int, peer_host: str) -> None:
        """Remove a closed connection from the counts."""

    def budget_used_up(self) -> None:
        """Called when unsent responses have used up their budget."""
