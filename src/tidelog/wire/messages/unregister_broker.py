"""UnregisterBroker (key 64): removes a broker's registration (KIP-631).

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, int16, int32, string


class UnregisterBrokerRequest(Message, api="UnregisterBroker", key=64, versions="0", flexible="0+"):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, api="UnregisterBroker", key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
