"""SaslHandshake (key 17): selects a client's SASL mechanism (KIP-43).

| version | what it changed |
|---|---|
| 1 | SASL messages are framed as SaslAuthenticate (KIP-152) |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, array, int16, string


class SaslHandshakeRequest(Message, api="SaslHandshake", key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api="SaslHandshake", key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
