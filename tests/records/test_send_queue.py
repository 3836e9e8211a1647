"""The queue of small responses: each socket gets its bytes in order, and what it does not take is returned, in both kernels."""

from __future__ import annotations

import fcntl
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tests.records.kernels import KERNELS

RING_BYTES = 256 * 1024
MOST_BYTES = 64 * 1024


@pytest.fixture(params=[(name, thread) for name in sorted(KERNELS) for thread in (True, False)], ids=str)
def queue(request: pytest.FixtureRequest) -> Iterator[Any]:
    name, with_thread = request.param
    made = KERNELS[name].SendQueue(with_thread)
    yield made
    made.close()


@pytest.fixture(params=sorted(KERNELS))
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return KERNELS[request.param]


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        yield [pair(stack) for _ in range(3)]


def pair(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(PATIENCE_S)
    return stack.enter_context(ours), stack.enter_context(theirs)


def received(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := sock.recv(size - len(data))):
        data += part
    return bytes(data)


def fill(sock: socket.socket) -> int:
    """Fill a socket's buffer. Return the number of bytes."""
    count = 0
    while True:
        try:
            count += sock.send(bytes(1 << 16))
        except BlockingIOError:
            return count


def put(queue: Any, sock: socket.socket, *chunks: Any) -> int:
    return queue.put(sock.fileno(), list(chunks), sum(map(len, chunks)))  # type: ignore[no-any-return]


def test_each_socket_gets_its_bytes_in_order(queue: Any, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """Of several buffers, more than fit into the ring, without anybody waiting for the thread."""
    for number in range(3000):
        ours, _theirs = pairs[number % 3]
        text = f"response {number}, ".encode() * (1 + number % 70)
        put(queue, ours, text[:5], memoryview(text)[5:9], b"", bytearray(text[9:]))
        if not number % 11:
            queue.flush()
        if number % 3 == 2:
            queue.flush()
            for one in range(number - 2, number + 1):
                expected = f"response {one}, ".encode() * (1 + one % 70)
                assert received(pairs[one % 3][1], len(expected)) == expected
    assert not queue.take_rests()


def test_the_thread_sends_without_its_owner(kernel: ModuleType, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """Each time after it has slept. Sixteen responses are sent without being told. The interpreted queue sends at once."""
    queue = kernel.SendQueue(True)
    for count in (1, 4, 5, 16, 40):
        for _ in range(count):
            put(queue, pairs[0][0], b"one")
        if count < 16:
            queue.flush()
        assert received(pairs[0][1], 3 * (count // 16 * 16 or count)) == b"one" * (count // 16 * 16 or count)
    queue.close()


def test_what_a_full_socket_does_not_take_is_returned(queue: Any, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """And all that follows for it; the others get theirs. Once it is taken, the socket may be used again."""
    (full, its), (other, others), _ = pairs
    waiting = fill(full)
    last = 0
    for number in range(100):
        put(queue, full, b"%03d" % number)
        last = put(queue, other, b"%03d" % number)
    queue.flush()
    assert select.select([queue], [], [], PATIENCE_S)[0]
    assert not queue.is_settled(last)
    rests = queue.take_rests()
    assert {fd for fd, _ in rests} == {full.fileno()}
    assert b"".join(data for _, data in rests) == b"".join(b"%03d" % number for number in range(100))
    assert received(others, 300) == b"".join(b"%03d" % number for number in range(100))
    assert queue.is_settled(last)
    assert not select.select([queue], [], [], 0)[0]
    assert received(its, waiting) == bytes(waiting)
    put(queue, full, b"again")
    queue.flush()
    assert received(its, 5) == b"again"


def test_what_follows_a_rest_does_not_overtake_it(queue: Any, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """Even if the peer has read by then."""
    ours, theirs = pairs[0]
    waiting = fill(ours)
    put(queue, ours, b"first")
    queue.flush()
    assert select.select([queue], [], [], PATIENCE_S)[0]
    assert received(theirs, waiting) == bytes(waiting)
    put(queue, ours, b"second")
    assert b"".join(data for _, data in queue.take_rests()) == b"firstsecond"


def test_half_of_a_response_is_returned(queue: Any, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    (ours, theirs), *_ = pairs
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sent = b""
    rests: list[tuple[int, bytes]] = []
    while not rests:
        part = os.urandom(MOST_BYTES)
        sent += part
        put(queue, ours, part)
        rests = queue.take_rests()
    left = b"".join(data for _, data in rests)
    assert 0 < len(left) <= MOST_BYTES
    assert received(theirs, len(sent) - len(left)) + left == sent


def test_a_peer_that_has_left(queue: Any, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    (ours, theirs), (other, others), _ = pairs
    theirs.close()
    put(queue, ours, b"nobody")
    put(queue, other, b"somebody")
    queue.flush()
    assert received(others, 8) == b"somebody"
    assert not queue.take_rests()
    assert ours.recv(1) == b""


def test_a_socket_with_a_high_number(queue: Any, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    (ours, theirs), *_ = pairs
    high = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 700)
    try:
        queue.put(high, [b"high"], 4)
        queue.flush()
        assert received(theirs, 4) == b"high"
    finally:
        os.close(high)


@pytest.mark.parametrize(("size", "fd"), [(MOST_BYTES + 1, 0), (5, -1), (5, None), (7, None)])
def test_a_response_that_is_refused(
    queue: Any, pairs: list[tuple[socket.socket, socket.socket]], size: int, fd: int | None
) -> None:
    """Too large, for a closed socket, or of another size than its chunks: what was put in before it, and after it, is sent."""
    ours, theirs = pairs[0]
    put(queue, ours, b"before")
    with pytest.raises(ValueError, match=r"a response of \d+ bytes for socket|chunks do not have the size"):
        queue.put(ours.fileno() if fd is None else fd, [b"abc", b"def"], size)
    put(queue, ours, b"after")
    queue.flush()
    assert received(theirs, 11) == b"beforeafter"


def test_a_closed_queue(kernel: ModuleType, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """It has sent everything, and does nothing more."""
    queue = kernel.SendQueue(True)
    number = put(queue, pairs[0][0], b"last")
    queue.close()
    assert received(pairs[0][1], 4) == b"last"
    queue.close()
    queue.flush()
    assert queue.is_settled(number)
    assert queue.take_rests() == []
    with pytest.raises(ValueError, match="an open socket"):
        put(queue, pairs[0][0], b"later")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 3000)),
        st.tuples(st.sampled_from(["flush", "take"]), st.just(0), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 20_000)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("name", sorted(KERNELS))
@given(steps=STEPS)
def test_any_order_of_calls(name: str, steps: list[tuple[str, int, int]]) -> None:
    """Small buffers, so that sockets are often full. The owner sends what was returned before it puts in more."""
    queue = KERNELS[name].SendQueue(True)
    with ExitStack() as stack:
        pairs = [pair(stack) for _ in range(3)]
        expected, arrived = [bytearray() for _ in pairs], [bytearray() for _ in pairs]
        unsent = [bytearray() for _ in pairs]
        numbers = {ours.fileno(): number for number, (ours, _) in enumerate(pairs)}
        for ours, theirs in pairs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            theirs.setblocking(False)

        def take() -> None:
            for fd, data in queue.take_rests():
                unsent[numbers[fd]] += data

        def read(number: int, size: int) -> None:
            with suppress(BlockingIOError):
                arrived[number] += pairs[number][1].recv(size)

        def send_unsent(number: int) -> None:
            with suppress(BlockingIOError):
                del unsent[number][: pairs[number][0].send(unsent[number])]

        for what, number, size in steps:
            if what == "put":
                part = os.urandom(size)
                expected[number] += part
                if unsent[number]:
                    unsent[number] += part
                else:
                    put(queue, pairs[number][0], part)
            elif what == "take":
                take()
                for one in range(3):
                    send_unsent(one)
            elif what == "read":
                read(number, size)
            else:
                getattr(queue, what)()
        take()
        for number in range(3):
            while len(arrived[number]) < len(expected[number]):
                send_unsent(number)
                read(number, 1 << 16)
        assert arrived == expected
    queue.close()
