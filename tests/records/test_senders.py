"""The threads that send: what they send, in both kernels, and what they report when they cannot."""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.records.kernels import KERNELS

MIB = 1 << 20
PAGE = mmap.PAGESIZE


@pytest.fixture(params=sorted(KERNELS))
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return KERNELS[request.param]


@pytest.fixture
def senders(kernel: ModuleType) -> Iterator[Any]:
    made = kernel.Senders(1, 1)
    yield made
    assert made.close(PATIENCE_S) == []


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def mapped(path: Path, size: int) -> memoryview:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))


def done(senders: Any) -> tuple[object, int, int]:
    """Return the one job that is done."""
    assert select.select([senders], [], [], PATIENCE_S)[0]
    (one,) = senders.done()
    return one  # type: ignore[no-any-return]


def send_all(senders: Any, sock: socket.socket, chunks: list[Any]) -> None:
    left = [memoryview(chunk) for chunk in chunks]
    while left:
        assert select.select([], [sock], [], PATIENCE_S)[1]
        senders.send(sock.fileno(), left, "owner")
        owner, sent, error = done(senders)
        assert (owner, error) == ("owner", 0)
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if sent:
            left[0] = left[0][sent:]


@pytest.mark.parametrize("is_cold", [False, True])
def test_all_bytes_in_their_order(tmp_path: Path, senders: Any, pair: tuple[socket.socket, socket.socket], is_cold: bool) -> None:
    """From memory and from a file on the disk; more buffers than one system call takes, empty ones, turns of a megabyte."""
    path = tmp_path / "log"
    content = os.urandom(3 * MIB + 123)
    path.write_bytes(content)
    if is_cold:
        with path.open("r+b") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    view = mapped(path, len(content))
    chunks = [b"head", view[7:], b"", bytearray(b"x") * 100_000, *(b"%d" % i for i in range(3000)), view[PAGE : 2 * MIB]]
    expected = b"".join(chunks)
    got = bytearray()

    def read() -> None:
        while len(got) < len(expected):
            got.extend(pair[1].recv(MIB))

    reader = threading.Thread(target=read)
    reader.start()
    send_all(senders, pair[0], chunks)
    reader.join(PATIENCE_S)
    assert bytes(got) == expected


def test_a_socket_that_is_full_holds_up_nobody(senders: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    """The one thread reports what the first socket has taken, and then sends to the second."""
    senders.send(pair[0].fileno(), [bytes(8 * MIB)], "full")
    owner, sent, error = done(senders)
    assert (owner, error) == ("full", 0)
    assert 0 < sent < 8 * MIB
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        senders.send(ours.fileno(), [b"small"], "next")
        assert done(senders) == ("next", 5, 0)
        assert theirs.recv(10) == b"small"


def test_a_file_that_was_cut_is_an_error(tmp_path: Path, kernel: ModuleType, pair: tuple[socket.socket, socket.socket]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * MIB)
    view = mapped(path, MIB)
    os.truncate(path, 16 * PAGE)
    senders = kernel.Senders(1, 1)
    theirs = pair[1]
    reader = threading.Thread(target=lambda: [None for _ in iter(lambda: theirs.recv(MIB), b"")], daemon=True)
    reader.start()
    sent, error = 0, 0
    while not error:
        assert select.select([], [pair[0]], [], PATIENCE_S)[1]
        senders.send(pair[0].fileno(), [view[sent:]], "cut")
        _, more, error = done(senders)
        sent += more
    assert error == errno.EFAULT
    assert sent <= 16 * PAGE
    assert senders.close(PATIENCE_S) == []
    pair[0].shutdown(socket.SHUT_RDWR)
    reader.join(PATIENCE_S)


def test_a_socket_that_is_shut_down_is_an_error(senders: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].shutdown(socket.SHUT_RDWR)
    senders.send(pair[0].fileno(), [bytes(MIB)], "gone")
    assert done(senders) == ("gone", 0, errno.EPIPE)


def test_reading_only(tmp_path: Path, kernel: ModuleType, senders: Any) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * MIB)
    view = mapped(path, MIB)
    senders.send(-1, [view], "read")
    assert done(senders) == ("read", 0, 0)
    assert not kernel.COMPILED or kernel.is_in_memory([view])


def test_an_end_returns_the_owners_of_what_nobody_collected(kernel: ModuleType) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        senders = kernel.Senders(1, 1)
        senders.send(ours.fileno(), [b"bytes"], "owner")
        assert select.select([senders], [], [], PATIENCE_S)[0]
        assert senders.close(PATIENCE_S) == ["owner"]
