"""Connections that lose what is sent, or what is answered: each request and each answer with the same probability."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidelog.client.connections.connection import Connection


class Unreliable:
    """As long as the patch is there. A request whose answer is lost has reached the broker, which may still be at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rng: random.Random, rate: float) -> None:
        self.losses = 0
        self._rng = rng
        self._rate = rate
        send, receive = Connection.send, Connection.receive

        def unreliable_send(connection: Connection, *args: Any) -> None:
            self._perhaps_lose(connection)
            send(connection, *args)

        def unreliable_receive(connection: Connection, *args: Any, **kwargs: Any) -> Any:
            self._perhaps_lose(connection)
            return receive(connection, *args, **kwargs)

        monkeypatch.setattr(Connection, "send", unreliable_send)
        monkeypatch.setattr(Connection, "receive", unreliable_receive)

    def _perhaps_lose(self, connection: Connection) -> None:
        if self._rng.random() < self._rate:
            self.losses += 1
            raise connection._lost(ConnectionResetError("by a test"))
