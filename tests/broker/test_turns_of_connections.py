"""Who moves bytes next, beside a loop that names the ready sockets in the order that is worst for one of them.

The sockets and the loop are the test's; connections, buffers and turns are the broker's. A round of the loop is asyncio's: what
was asked for with `call_soon` first, then the sockets that are ready, each once. All orders of the ready sockets are possible:
the system promises none.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.broker.net.answer_rounds import AnswerRounds
from tidelog.broker.net.read_buffers import LARGE_BYTES, ReadBuffers
from tidelog.broker.net.tls_socket import RECORD_BYTES, RECORDS_A_TURN, RECORDS_AT_ONCE
from tidelog.broker.net.turns import ROUND_BYTES, Turns
from tidelog.broker.requests.request import Outcome
from tidelog.broker.server.connection import Connection
from tidelog.broker.server.secured.tls_connection import TlsConnection

KIB, MIB = 1024, 1024 * 1024
TURN_BYTES = 2 * MIB
WINDOW = 4 * MIB
"""What the system keeps of what a peer has sent, or is to get."""
MORE = -(-8 * MIB // ROUND_BYTES)
"""Rounds that move 8 MiB of bulk."""
NONE, ODD, ALL = range(0), range(1, 99, 2), range(99)
"""Connections that use TLS."""


class Loop:
    """Rounds like asyncio's; `order` sorts the descriptors of the ready sockets."""

    def __init__(self, order: Callable[[list[int]], None]) -> None:
        self._order = order
        self._soon: deque[Callable[[], object]] = deque()
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}
        self.sockets: dict[int, Socket] = {}

    def call_soon(self, call: Callable[[], object]) -> None:
        self._soon.append(call)

    def add_reader(self, fd: int, call: Callable[[], object]) -> None:
        self._readers[fd] = call

    def add_writer(self, fd: int, call: Callable[[], object]) -> None:
        self._writers[fd] = call

    def remove_reader(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def remove_writer(self, fd: int) -> None:
        self._writers.pop(fd, None)

    def call_reader(self, fd: int) -> None:
        self._readers[fd]()

    def round(self) -> None:
        ready = [fd for fd in self.sockets if fd in self._readers or fd in self._writers]
        self._order(ready)
        calls = [*self._soon]
        self._soon.clear()
        for fd in ready:
            one = self.sockets[fd]
            calls += [self._readers[fd]] if one.incoming and fd in self._readers else []
            calls += [self._writers[fd]] if one.room and fd in self._writers else []
        for call in calls:
            call()


class Socket:
    """A peer that always has more requests under way, and takes what it gets. Of what it sends only the sizes are written."""

    def __init__(self, loop: Loop, fd: int, sizes: Iterator[int]) -> None:
        self._fd = fd
        self._sizes = sizes
        self._head = b""
        self._left = 0
        self.incoming = self.room = WINDOW
        self.turns = 0
        self.sent = 0
        loop.sockets[fd] = self

    def refill(self) -> None:
        """The peer goes on, between two rounds."""
        self.incoming = self.room = WINDOW

    def fileno(self) -> int:
        return self._fd

    def recv_into(self, buffer: memoryview) -> int:
        if not self.incoming:
            raise BlockingIOError
        received = min(len(buffer), self.incoming)
        at = 0
        while at < received:
            if not self._head and not self._left:
                self._left = next(self._sizes)
                self._head = struct.pack(">i", self._left)
            head = min(len(self._head), received - at)
            buffer[at : at + head] = self._head[:head]
            self._head = self._head[head:]
            at += head
            if not self._head:
                body = min(self._left, received - at)
                self._left -= body
                at += body
        self.incoming -= received
        self.turns += 1
        return received

    def recv(self, size: int, flags: int) -> bytes:
        return b"more"[:size]

    def send(self, chunk: bytes) -> int:
        return self.writev([chunk])

    def writev(self, chunks: list[bytes]) -> int:
        if not self.room:
            raise BlockingIOError
        size = min(sum(map(len, chunks)), self.room)
        self.room -= size
        self.sent += size
        return size


class TlsPeer(Socket):
    """A socket with TLS whose handshake is over: a read may leave decrypted bytes, of which the system knows nothing."""

    is_stepping = False

    def __init__(self, loop: Loop, fd: int, sizes: Iterator[int]) -> None:
        super().__init__(loop, fd, sizes)
        self._decrypted = 0

    @property
    def pending(self) -> bool:
        return self._decrypted > 0

    def recv_into(self, buffer: memoryview) -> int:
        self.incoming += self._decrypted  # What is left of the last read comes first.
        received = super().recv_into(buffer[: RECORDS_A_TURN * RECORD_BYTES])
        self._decrypted = min(self.incoming, RECORDS_AT_ONCE * RECORD_BYTES)
        self.incoming -= self._decrypted
        return received

    def step(self) -> None:
        """Nothing is left of the handshake."""

    def stepped(self) -> bool:
        return True

    def sealed(self, _: list[bytes]) -> None:
        """It sends on the loop."""

    def peer_certificate(self) -> None:
        """It has none."""


class Bulk:
    """Other threads: what they have sent by the next round is what the socket takes at once."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.jobs = 0

    def send(self, fd: int, chunks: list[bytes], done: Callable[[int, int], None]) -> bool:
        self.jobs += 1
        one = self._loop.sockets[fd]
        self._loop.call_soon(lambda: done(one.writev(chunks) if one.room else 0, 0))
        return True

    def read(self, chunks: list[bytes], done: Callable[[int, int], None]) -> bool:
        self.jobs += 1
        self._loop.call_soon(lambda: done(0, 0))
        return True


class Queue:
    """Another thread that sends small responses when it is told to."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, list[bytes]]] = []
        self._rests: list[tuple[int, bytes]] = []

    def put(self, fd: int, chunks: list[bytes], _: int) -> int:
        self._waiting.append((fd, chunks))
        return 1

    def flush(self) -> None:
        for fd, chunks in self._waiting:
            one = self._loop.sockets[fd]
            sent = one.writev(chunks) if one.room else 0
            if rest := b"".join(chunks)[sent:]:
                self._rests.append((fd, rest))
        self._waiting.clear()

    def is_settled(self, _: int) -> bool:
        return not self._waiting and not self._rests

    def take_rests(self) -> list[tuple[int, bytes]]:
        self.flush()
        rests, self._rests = self._rests, []
        return rests


class AloneTurns(Turns):
    """Each connection counts as the only active one."""

    are_shared = False


class House:
    """A server with connections, as far as they need one. `answer` makes the answer to a request of some size."""

    def __init__(
        self,
        loop: Loop,
        answer: Callable[[int], list[bytes] | Outcome],
        max_bytes: int = -1,
        *,
        secured: range = NONE,
        is_sent_here: bool = True,
    ) -> None:
        self.secured = secured
        self.shaking: set[object] = set()
        self.handshakes = SimpleNamespace(run=lambda step, stepped: stepped(step()))
        self.loop = loop
        self.buffers = ReadBuffers(max_bytes)
        self.bulk = Bulk(loop)
        self.turns = (AloneTurns if is_sent_here else Turns)(loop.call_soon)
        self.max_request_bytes = 100 * MIB
        self.answered: Counter[int] = Counter()
        self.answers = AnswerRounds(cast("Any", Queue(loop)))
        self._answer = answer
        self.dispatcher = SimpleNamespace(handle=self._handle)
        quiet = SimpleNamespace(note=lambda _: None)
        unsent = SimpleNamespace(add=lambda _: None, used_bytes=0, max_bytes=1)
        counters = SimpleNamespace(received_bytes=0, sent_bytes=0)
        self.node = SimpleNamespace(metrics=SimpleNamespace(counters=counters), slices=quiet, unsent=unsent)

    def connect(self, fd: int, sizes: Iterator[int]) -> None:
        me, none = cast("Any", self), cast("Any", None)
        if fd in self.secured:
            TlsConnection(me, cast("Any", TlsPeer(self.loop, fd, sizes)), fd, "127.0.0.1", none, none)
            self.loop.call_reader(fd)  # The handshake.
        else:
            Connection(me, cast("Any", Socket(self.loop, fd, sizes)), fd, "127.0.0.1", none)

    def _handle(self, connection: Connection, data: memoryview, position: int, end: int) -> list[bytes] | Outcome:
        self.answered[connection.connection_id] += 1
        return cast("Any", self._answer(end - position))

    def run(self, rounds: int) -> Iterator[None]:
        for _ in range(rounds):
            self.answers.ready = len(self.loop.sockets)
            self.loop.round()
            self.answers.take_back()
            yield
            for one in self.loop.sockets.values():
                one.refill()


@pytest.fixture(autouse=True)
def _timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds and turns end by bytes and counts alone."""
    monkeypatch.setattr("tidelog.broker.net.turns.perf_counter", lambda: 0.0)
    monkeypatch.setattr("tidelog.broker.server.connection.perf_counter_ns", lambda: 0)


def repeated(*sizes: int) -> Iterator[int]:
    for i in count():
        yield sizes[i % len(sizes)]


orders = st.one_of(
    st.just(lambda fds: fds.sort()),
    st.just(lambda fds: fds.sort(reverse=True)),
    st.integers(0, 2**32).map(lambda seed: random.Random(seed).shuffle),
)


secured_ones = st.sampled_from([NONE, ODD, ALL])


@examples(30)
@given(st.integers(2, 30), st.integers(LARGE_BYTES, 3 * MIB), orders, st.booleans(), st.sampled_from([NONE, ALL]))
def test_equal_requests_get_equal_service(
    connections: int, size: int, order: Callable[[list[int]], None], answered: bool, secured: range
) -> None:
    """acks=1 or acks=0: nobody is two answers ahead of anybody else."""
    house = House(Loop(order), lambda _: [b"answer"] if answered else Outcome.NOTHING, secured=secured)
    for fd in range(connections):
        house.connect(fd, repeated(size))
    turns_a_request = -(-size // (2 * MIB)) + 1
    for _ in house.run(8 * turns_a_request * max(1, -(-connections * size // ROUND_BYTES))):
        counts = [house.answered[fd] for fd in range(connections)]
        assert max(counts) - min(counts) <= 2
    assert min(house.answered[fd] for fd in range(connections)) >= 3


@examples(30)
@given(st.integers(12, 30), st.integers(MIB, 3 * MIB), orders)
def test_tls_gets_as_much_as_plain_text(connections: int, size: int, order: Callable[[list[int]], None]) -> None:
    """A connection with TLS is called for its decrypted bytes, too; this is no second turn where others wait for one."""
    house = House(Loop(order), lambda _: [b"answer"], secured=ODD)
    for fd in range(connections):
        house.connect(fd, repeated(size))
    for _ in house.run(8 * connections):
        counts = [house.answered[fd] for fd in range(connections)]
        assert max(counts) - min(counts) <= 2
    assert min(house.answered[fd] for fd in range(connections)) >= 3


@examples(30)
@given(st.data())
def test_requests_of_all_sizes(data: st.DataObject) -> None:
    """Whoever has sent something gets on once all others had a turn, however large their requests are."""
    sizes = st.lists(st.sampled_from([200, 20 * KIB, 60 * KIB, 200 * KIB, MIB, 6 * MIB]), min_size=1, max_size=4)
    house = House(Loop(data.draw(orders)), lambda _: [b"answer"], secured=data.draw(secured_ones))
    for fd, mine in enumerate(data.draw(st.lists(sizes, min_size=2, max_size=24))):
        house.connect(fd, repeated(*mine))
    sockets = [*house.loop.sockets.values()]
    longest = -(-len(sockets) * TURN_BYTES // ROUND_BYTES) + 2
    waited = Counter[int]()
    before = [0] * len(sockets)
    for _ in house.run(60):
        now = [one.turns + house.answered[fd] for fd, one in enumerate(sockets)]
        for fd, done in enumerate(now):
            waited[fd] = waited[fd] + 1 if done == before[fd] else 0
            assert waited[fd] <= longest
        before = now


def test_a_round_moves_little_bulk() -> None:
    """Small requests are answered between two rounds, so each megabyte that a round moves makes them wait."""
    house = House(Loop(list.sort), lambda _: [b"answer"])
    for fd in range(30):
        house.connect(fd, repeated(MIB))
    before = 0
    for number, _ in enumerate(house.run(20)):
        moved = house.node.metrics.counters.received_bytes - before
        before += moved
        assert number < 2 or moved <= 3 * MIB


@pytest.mark.parametrize("secured", [NONE, ODD, ALL])
@pytest.mark.parametrize("order", [list.sort, lambda fds: fds.sort(reverse=True)])
def test_small_requests_beside_bulk_are_answered_in_each_round(order: Callable[[list[int]], None], secured: range) -> None:
    house = House(Loop(order), lambda _: [b"answer"], secured=secured)
    for fd in range(30):
        house.connect(fd, repeated(900 * KIB) if fd % 2 else repeated(100))
    before = Counter[int]()
    for _ in house.run(40 * MORE):
        assert all(house.answered[fd] > before[fd] for fd in range(0, 30, 2))
        before = house.answered.copy()
    bulk = [house.answered[fd] for fd in range(1, 30, 2)]
    assert max(bulk) - min(bulk) <= 2
    assert min(bulk) > 10


@pytest.mark.parametrize("size", [20 * KIB, 64 * KIB, MIB])
def test_small_responses_do_not_wait_until_bulk_is_stored(size: int) -> None:
    """They are kept until their round ends, but not while a larger request of that round is handled."""
    small = b"answer"

    def answer(size: int) -> list[bytes]:
        if size > KIB:
            assert house.loop.sockets[0].sent == house.answered[0] * len(small)
        return [small]

    house = House(Loop(list.sort), answer)
    for fd in range(4):
        house.connect(fd, repeated(size) if fd else repeated(100))
    for _ in house.run(20):
        pass
    assert min(house.answered[fd] for fd in range(4)) > 3


@examples(30)
@given(orders, st.integers(1, 5), secured_ones, st.booleans())
def test_large_responses(order: Callable[[list[int]], None], mebibytes: int, secured: range, is_sent_here: bool) -> None:
    """Answers that do not fit in what the system keeps, beside producers."""
    response = b"x" * (mebibytes * 3 * MIB)
    house = House(Loop(order), lambda size: [response] if size < KIB else [b"answer"], secured=secured, is_sent_here=is_sent_here)
    for fd in range(24):
        house.connect(fd, repeated(200) if fd % 3 else repeated(MIB))
    for _ in house.run(100 * MORE):
        pass
    produced = [house.answered[fd] for fd in range(24) if not fd % 3]
    here = {fd for fd in range(24) if is_sent_here or fd in secured}
    for group in (here, set(range(24)) - here):
        sent = [house.loop.sockets[fd].sent for fd in group if fd % 3]
        assert not sent or max(sent) - min(sent) <= 2 * (len(response) + TURN_BYTES)
    assert max(produced) - min(produced) <= 2
    assert min(produced) > 5
    assert bool(house.bulk.jobs) is (not is_sent_here and secured is not ALL)


@examples(30)
@given(orders, st.integers(1, 20), st.integers(LARGE_BYTES, 3 * MIB), secured_ones)
def test_memory_that_is_scarce_is_shared_in_turns(
    order: Callable[[list[int]], None], mebibytes: int, size: int, secured: range
) -> None:
    """`queued.max.request.bytes`: who has waited for room longest has it first."""
    house = House(Loop(order), lambda _: [b"answer"], mebibytes * MIB, secured=secured)
    for fd in range(20):
        house.connect(fd, repeated(size))
    for _ in house.run(150):
        counts = [house.answered[fd] for fd in range(20)]
        assert max(counts) - min(counts) <= 4
    assert min(counts) > 3
