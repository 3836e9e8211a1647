"""The socket of TLS: what a peer sends costs a bounded number of records at each call, and what is written comes, in order."""

from __future__ import annotations

import hashlib
import hmac
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.certificates import Authority
from tidelog.broker.net.tls_socket import HANDSHAKE_RECORDS, IDLE_RECORDS, RECORDS_A_TURN, WRITTEN_BYTES, TlsSocket
from tidelog.broker.server.answer_writer import _behind
from tidelog.errors import ProtocolError
from tidelog.security.tls_context import ContextSource, server_context
from tidelog.security.tls_settings import TlsSettings

HANDSHAKE, DATA = 22, 23


def expanded(secret: bytes, label: bytes, size: int) -> bytes:
    """Return HKDF-Expand-Label (RFC 8446, 7.1), no longer than a hash."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + b"\0"
    return hmac.new(secret, info + b"\1", hashlib.sha384).digest()[:size]


class Peer:
    """A client that can be told to write any records. `tls` is its usual half, until it has renewed its keys."""

    def __init__(self, ca: Path, keys: Path) -> None:
        keys.write_text("")
        context = ssl.create_default_context(cafile=ca)
        context.keylog_filename = str(keys)
        self._keys = keys
        self.come, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.come, self.out, server_hostname="localhost")
        self.sock, self.other = socket.socketpair()
        self.other.setblocking(False)
        self._secret = b""
        self._count = 0

    def hello(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.out.read()

    def shake(self, server: TlsSocket) -> None:
        self.sock.sendall(self.hello())
        assert server.step() == "read"
        self.come.write(self.sock.recv(65536))
        self.tls.do_handshake()
        self.sock.sendall(self.out.read())
        assert server.step() is None
        assert self.tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)

    def record(self, content: bytes, kind: int = DATA) -> bytes:
        """Return a record of our own making; from then on `tls` may write nothing."""
        if not self._secret:
            lines = self._keys.read_text().splitlines()
            self._secret = next(bytes.fromhex(one.split()[2]) for one in lines if one.startswith("CLIENT_TRAFFIC_SECRET_0"))
        inner = content + bytes([kind])
        header = struct.pack(">BHH", DATA, 0x303, len(inner) + 16)
        start = int.from_bytes(expanded(self._secret, b"iv", 12)) ^ self._count
        self._count += 1
        return header + AESGCM(expanded(self._secret, b"key", 32)).encrypt(start.to_bytes(12), inner, header)

    def new_keys(self, *, wants_answer: bool) -> bytes:
        made = self.record(bytes([24, 0, 0, 1, wants_answer]), HANDSHAKE)
        self._secret, self._count = expanded(self._secret, b"traffic upd", 48), 0
        return made

    def close(self) -> None:
        self.sock.close()
        self.other.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("tls-socket"))
    authority.sign("broker", hosts=("localhost",))
    return authority


@pytest.fixture
def peer(authority: Authority, tmp_path: Path) -> Iterator[Peer]:
    made = Peer(authority.ca, tmp_path / "keys")
    yield made
    made.close()


@pytest.fixture
def server(authority: Authority, peer: Peer) -> TlsSocket:
    return TlsSocket(peer.other, ContextSource(TlsSettings(chain_file=str(authority.folder / "broker.pem")), server_context))


def outcome(server: TlsSocket) -> bytes:
    """Read once; what would block has read nothing."""
    buffer = memoryview(bytearray(65536))
    try:
        return bytes(buffer[: server.recv_into(buffer)])
    except BlockingIOError:
        return b""


def test_small_records_are_read_some_at_a_time(peer: Peer, server: TlsSocket) -> None:
    peer.shake(server)
    sent = random.Random(1).randbytes(10 * RECORDS_A_TURN)
    for byte in sent:
        peer.tls.write(bytes([byte]))
    peer.sock.sendall(peer.out.read())
    got = [outcome(server)]
    while server.pending:
        got.append(outcome(server))
    assert {len(one) for one in got} == {RECORDS_A_TURN}
    assert b"".join(got) == sent
    assert outcome(server) == b""


def test_a_small_buffer_leaves_nothing_behind(peer: Peer, server: TlsSocket) -> None:
    peer.shake(server)
    sent = random.Random(2).randbytes(20_000)
    peer.tls.write(sent)
    peer.sock.sendall(peer.out.read())
    got, buffer = b"", memoryview(bytearray(777))
    while len(got) < len(sent):
        assert server.pending or not got
        got += buffer[: server.recv_into(buffer)]
    assert got == sent
    assert not server.pending


@pytest.mark.parametrize("wants_answer", [False, True])
def test_new_keys_without_end(peer: Peer, server: TlsSocket, wants_answer: bool) -> None:
    """Each call comes back; at last the connection ends."""
    peer.shake(server)
    peer.sock.sendall(b"".join(peer.new_keys(wants_answer=wants_answer) for _ in range(3 * IDLE_RECORDS)))
    with pytest.raises(ConnectionError, match="empty TLS records"):
        while True:
            assert outcome(server) == b""
            assert server.pending


@pytest.mark.parametrize("wants_answer", [False, True])
def test_new_keys_now_and_then(peer: Peer, server: TlsSocket, wants_answer: bool) -> None:
    peer.shake(server)
    for number in range(10):
        renewed = b"".join(peer.new_keys(wants_answer=wants_answer) for _ in range(20))
        peer.sock.sendall(renewed + peer.record(b"data %d" % number))
        assert outcome(server) == b"data %d" % number
        assert server.send(b"answer %d" % number) == 8
        peer.come.write(peer.sock.recv(65536))
        assert peer.tls.read(100) == b"answer %d" % number


def test_answers_to_new_keys_that_nobody_takes(peer: Peer, server: TlsSocket) -> None:
    peer.shake(server)
    held = 0
    with pytest.raises(ConnectionError, match="does not read responses"):
        for _ in range(10_000):
            peer.sock.sendall(b"".join(peer.new_keys(wants_answer=True) for _ in range(20)) + peer.record(b"x"))
            outcome(server)
            held = max(held, len(server._unsent or b"") + server._out.pending)
    assert 0 < held <= WRITTEN_BYTES


def hello_in_pieces(peer: Peer, size: int, first: int = 4) -> bytes:
    message = peer.hello()[5:]
    pieces = [message[:first], *(message[start : start + size] for start in range(first, len(message), size))]
    return b"".join(struct.pack(">BHH", HANDSHAKE, 0x301, len(one)) + one for one in pieces)


def test_a_handshake_of_many_records(peer: Peer, server: TlsSocket) -> None:
    pieces = hello_in_pieces(peer, 1)
    assert len(pieces) > 6 * (HANDSHAKE_RECORDS + 10)
    peer.sock.sendall(pieces)
    with pytest.raises(ProtocolError, match="too many records"):
        server.step()


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_length_in_pieces(peer: Peer, server: TlsSocket, first: int) -> None:
    """How much it announces is looked at before OpenSSL makes room for it."""
    peer.sock.sendall(hello_in_pieces(peer, 100, first))
    with pytest.raises(ProtocolError, match="too short"):
        server.step()


def test_a_handshake_of_some_records(peer: Peer, server: TlsSocket) -> None:
    peer.sock.sendall(hello_in_pieces(peer, 16))
    assert server.step() == "read"
    peer.come.write(peer.sock.recv(65536))
    peer.tls.do_handshake()
    peer.sock.sendall(peer.out.read())
    assert server.step() is None


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\xff\xff" + b"x" * 50, b"\x17\x03\x03\0\x20" + b"x" * 32]
)
def test_garbage_ends_it(peer: Peer, server: TlsSocket, garbage: bytes) -> None:
    peer.shake(server)
    peer.sock.sendall(garbage)
    with pytest.raises(ssl.SSLError):
        outcome(server)
    assert peer.sock.recv(65536), "session tickets, or an alert"


def test_the_end_comes_after_the_data(peer: Peer, server: TlsSocket) -> None:
    peer.shake(server)
    peer.tls.write(b"last")
    peer.sock.sendall(peer.out.read())
    peer.sock.close()
    buffer = memoryview(bytearray(100))
    assert buffer[: server.recv_into(buffer)] == b"last"
    assert server.recv_into(buffer) == 0


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_comes_in_order(peer: Peer, server: TlsSocket, seed: int) -> None:
    """However little the system takes, and however what is left is cut."""
    chance = random.Random(seed)
    peer.shake(server)
    sizes: list[Callable[[], int]] = [lambda: 1, lambda: chance.randrange(300), lambda: chance.randrange(100_000)]
    chunks: list[Any] = [chance.randbytes(chance.choice(sizes)()) for _ in range(60)]
    wanted = b"".join(chunks)
    got, waits = b"", 0
    while len(got) < len(wanted):
        try:
            chunks = _behind(chunks, server.writev(chunks[: chance.randrange(1, 9)])) if chunks else chunks
        except BlockingIOError:
            waits += 1
        peer.sock.settimeout(0)
        try:
            peer.come.write(peer.sock.recv(chance.randrange(1, 20_000)))
            while True:
                got += cast("bytes", peer.tls.read(1 << 20))
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
    assert got == wanted
    assert waits > 10
