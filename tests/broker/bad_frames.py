"""What strangers send, and what Kafka does about it. `tests/interop/test_bad_frames.py` asks Kafka itself."""

from __future__ import annotations

import enum
import socket
import struct
from typing import NamedTuple

from tests.patience import PATIENCE_S
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.metadata import MetadataRequest


class Verdict(enum.Enum):
    CLOSED = enum.auto()
    ANSWERED = enum.auto()
    """... with the correlation id 7 and no error."""
    UNSUPPORTED = enum.auto()
    """... with UNSUPPORTED_VERSION, in version 0 of ApiVersions."""
    SILENCE = enum.auto()


"""More than any answer takes, however busy the machine is."""


class BadFrame(NamedTuple):
    name: str
    data: bytes
    verdict: Verdict

    def seen(self, address: tuple[str, int], quiet_s: float) -> Verdict:
        """Send it, and say what happens. What is expected is waited for; nothing happens if nothing has for `quiet_s`."""
        return verdict_of(address, self.data, quiet_s if self.verdict is Verdict.SILENCE else PATIENCE_S)


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def header(api_key: int, version: int, length: int, client_id: bytes = b"") -> bytes:
    return struct.pack(">hhih", api_key, version, 7, length) + client_id


VERSIONS = b"".join(request_chunks(ApiVersionsRequest(), 0, 7, "x"))
METADATA = b"".join(request_chunks(MetadataRequest(topics=None), 1, 7, "x"))

BAD_FRAMES = [
    BadFrame("no client id", sized(header(18, 0, -1)), Verdict.ANSWERED),
    BadFrame("client id of length -2", sized(header(18, 0, -2)), Verdict.ANSWERED),
    BadFrame("client id that is no UTF-8", sized(header(18, 0, 2, b"\xff\xfe")), Verdict.ANSWERED),
    BadFrame("client id longer than the frame", sized(header(18, 0, 200, b"x")), Verdict.CLOSED),
    BadFrame("client id of the next frame", sized(header(18, 0, 30, b"x")) + VERSIONS * 2, Verdict.CLOSED),
    BadFrame("ApiVersions of the future", sized(header(18, 99, 1, b"x\0")), Verdict.UNSUPPORTED),
    BadFrame("ApiVersions of version -1", sized(header(18, -1, 1, b"x")), Verdict.UNSUPPORTED),
    BadFrame("no tags where they belong", sized(header(18, 99, 1, b"x")), Verdict.CLOSED),
    BadFrame("unknown API", sized(header(999, 0, 1, b"x")), Verdict.CLOSED),
    BadFrame("API -1", sized(header(-1, 0, 1, b"x")), Verdict.CLOSED),
    BadFrame("Metadata of the future", sized(header(3, 99, 1, b"x\0")), Verdict.CLOSED),
    BadFrame("an API between brokers, LeaderAndIsr", sized(header(4, 0, 1, b"x\0")), Verdict.CLOSED),
    BadFrame("size -1", struct.pack(">i", -1) + VERSIONS, Verdict.CLOSED),
    BadFrame("size -2147483648", struct.pack(">i", -(2**31)), Verdict.CLOSED),
    BadFrame("size 0", struct.pack(">i", 0), Verdict.CLOSED),
    BadFrame("size 0 and a request", struct.pack(">i", 0) + VERSIONS, Verdict.CLOSED),
    BadFrame("a byte more than socket.request.max.bytes", struct.pack(">i", 104_857_601) + b"x", Verdict.CLOSED),
    BadFrame("the largest size", struct.pack(">i", 2**31 - 1), Verdict.CLOSED),
    BadFrame("socket.request.max.bytes, to come", struct.pack(">i", 104_857_600) + b"x", Verdict.SILENCE),
    BadFrame("half a size", b"\0\0", Verdict.SILENCE),
    BadFrame("half a header", sized(b"\0\x12\0\0"), Verdict.CLOSED),
    BadFrame("a body that ends early", sized(METADATA[4:-2]), Verdict.CLOSED),
    BadFrame("a web browser", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Verdict.CLOSED),
    BadFrame("a TLS client", bytes.fromhex("16030100b8010000b40303") + bytes(180), Verdict.CLOSED),
    BadFrame("many arrays that are not there", sized(METADATA[4:-4] + struct.pack(">i", 2**31 - 1)), Verdict.CLOSED),
    BadFrame("a request and garbage", VERSIONS + b"\xff" * 50, Verdict.ANSWERED),
]


def verdict_of(address: tuple[str, int], data: bytes, patience_s: float = PATIENCE_S) -> Verdict:
    """Send it, and say what happens within that time."""
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        connection.settimeout(patience_s)
        try:
            answer = connection.recv(4096)
        except TimeoutError:
            return Verdict.SILENCE
        except ConnectionError:
            return Verdict.CLOSED
    if not answer:
        return Verdict.CLOSED
    _, correlation_id, error_code = struct.unpack_from(">iih", answer)
    assert correlation_id == 7
    assert error_code in (0, 35)
    return Verdict.UNSUPPORTED if error_code else Verdict.ANSWERED
