"""What a client can send on a connection that SASL guards, step by step, and what a broker makes of each.

A walk is a list of steps' names; its outcome has one text a step: an error code where the answer has one, "answered" where it has
none, "closed" where the connection ends. What comes behind "closed" is not sent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import product

from tests.broker.raw import RawClient
from tidelog.security.scram import ScramClient
from tidelog.security.secret import Secret
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
MECHANISM = "SCRAM-SHA-256"


def plain(user: str) -> bytes:
    return f"\0{user}\0{USERS[user]}".encode()


REQUESTS: dict[str, tuple[Message, int]] = {
    "versions": (ApiVersionsRequest("test", "1"), 3),
    "versions of a bad name": (ApiVersionsRequest("", ""), 3),
    "handshake": (SaslHandshakeRequest("PLAIN"), 1),
    "handshake 0": (SaslHandshakeRequest("PLAIN"), 0),
    "handshake of SCRAM": (SaslHandshakeRequest(MECHANISM), 1),
    "handshake of none": (SaslHandshakeRequest("NONE"), 1),
    "authenticate": (SaslAuthenticateRequest(plain("alice")), 2),
    "authenticate as bob": (SaslAuthenticateRequest(plain("bob")), 2),
    "authenticate wrongly": (SaslAuthenticateRequest(b"\0alice\0wrong"), 2),
    "begin SCRAM": (SaslAuthenticateRequest(ScramClient(MECHANISM, "alice", Secret("any"), nonce="abc").first()), 2),
    "metadata": (MetadataRequest([]), 9),
    "groups": (ListGroupsRequest(), 4),
}
FRAMES: dict[str, bytes] = {
    "versions of version 99": struct.pack(">hhih", 18, 99, 1, -1),
    "handshake of version 9": struct.pack(">hhih", 17, 9, 1, -1),
    "authenticate of version 9": struct.pack(">hhih", 36, 9, 1, -1),
    "an unknown API": struct.pack(">hhih", 999, 0, 1, -1),
    "a bare token": plain("alice"),
    "nothing": b"",
}
STEPS = (*REQUESTS, *FRAMES)

WAYS: dict[str, list[str]] = {
    "new": [],
    "versions known": ["versions"],
    "versions refused": ["versions of version 99"],
    "versions of a bad name": ["versions of a bad name"],
    "in PLAIN": ["handshake"],
    "in bare PLAIN": ["handshake 0"],
    "in SCRAM": ["handshake of SCRAM"],
    "in the midst of SCRAM": ["handshake of SCRAM", "begin SCRAM"],
    "authenticated": ["versions", "handshake", "authenticate"],
    "authenticated by a bare token": ["handshake 0", "a bare token"],
    "in re-authentication": ["handshake", "authenticate", "handshake"],
    "in bare re-authentication": ["handshake", "authenticate", "handshake 0"],
    "in re-authentication by another mechanism": ["handshake", "authenticate", "handshake of SCRAM"],
    "re-authenticated": ["handshake", "authenticate", "handshake", "authenticate"],
    "in a second re-authentication": ["handshake", "authenticate", "handshake", "authenticate", "handshake"],
}
"""How a connection gets into each state."""

WALKS = {f"{way}, {step}": [*WAYS[way], step] for way, step in product(WAYS, STEPS)}


def walked(address: tuple[str, int], steps: list[str]) -> list[str]:
    """Return what becomes of each step on a new connection, and of a request for metadata behind them."""
    outcome = []
    with RawClient(address, client_id=None) as client:
        for step in [*steps, "metadata"]:
            try:
                outcome.append(_taken(client, step))
            except (ConnectionError, EOFError, struct.error):
                return [*outcome, "closed"]
    return outcome


def _taken(client: RawClient, step: str) -> str:
    if step in FRAMES:
        frame = FRAMES[step]
        client.send_bytes(struct.pack(">i", len(frame)) + frame)
        answer = client.receive_frame()
        if step == "versions of version 99":
            return _named(struct.unpack_from(">h", answer, 4)[0])
        return f"answered with {len(answer)} bytes"
    message, version = REQUESTS[step]
    answer = _asked(client, message, version)
    return _named(getattr(answer, "error_code", 0))


def _asked(client: RawClient, message: Message, version: int) -> Message:
    ask: Callable[[Message, int], Message] = client.ask
    return ask(message, version)


def _named(code: int) -> str:
    return ErrorCode(code).name
