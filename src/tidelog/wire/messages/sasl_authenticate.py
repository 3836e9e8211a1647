"""SaslAuthenticate (key 36): one message of a SASL mechanism, and its response (KIP-152).

| version | what it changed |
|---|---|
| 1 | the session's lifetime, 0 for no limit (KIP-368) |
| 2 | flexible |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, data, int16, int64, string


class SaslAuthenticateRequest(Message, api="SaslAuthenticate", key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = data()


class SaslAuthenticateResponse(Message, api="SaslAuthenticate", key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = data()
    session_lifetime_ms: int = int64("1+")
