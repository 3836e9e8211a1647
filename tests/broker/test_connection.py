"""How a connection reads, answers and ends. The API after it is one of the tests': it answers with checksums of what it got."""

from __future__ import annotations

import random
import socket
import threading
import zlib
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.examples import examples
from tests.patience import PATIENCE_S
from tidelog.broker.apis import api_versions
from tidelog.broker.handling.access import NOTHING
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSION = 7
AT_ONCE, NEVER, LATER, EARLY, CLOSE, RAISE, LARGE, WAIT = 1, 0, 2, 3, 4, 5, 6, 7


class Put:
    """A test's API: the request's `acks` say how it is answered."""

    def __init__(self) -> None:
        self.later: list[tuple[Request, ProduceResponse]] = []
        self.came = threading.Semaphore(0)
        self.gone = threading.Semaphore(0)
        self.handled = 0
        self.api = Api(ProduceRequest, ProduceResponse, Versions(0, 11), NOTHING, self.handle)

    def handle(self, node: Node, message: ProduceRequest, request: Request) -> ProduceResponse | Outcome:
        records = message.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        answer = _answer(zlib.crc32(records))
        records[:] = bytes(len(records))  # What a handler does to them must not show anywhere else.
        self.handled += 1
        match message.acks:
            case 0:
                return Outcome.NOTHING
            case 2 | 7:
                self.later.append((request, answer))
                if message.acks == WAIT:
                    request.when_gone(self.gone.release)
                self.came.release()
                return Outcome.LATER
            case 3:
                request.respond(answer)
                return Outcome.LATER
            case 4:
                return Outcome.CLOSE
            case 5:
                raise RuntimeError("as the test wants it")
            case 6:
                answer.responses[0].name = "x" * 32_000
                answer.responses *= 1000
        return answer


def _answer(checksum: int) -> ProduceResponse:
    return ProduceResponse([TopicProduceResponse(name="t", partition_responses=[PartitionProduceResponse(base_offset=checksum)])])


def put(records: bytes, acks: int = AT_ONCE) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=records)])]
    )


def checksum(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].base_offset


@pytest.fixture
def api() -> Put:
    return Put()


@pytest.fixture
def broker(start_broker: StartBroker, api: Put) -> RunningBroker:
    return start_broker(apis=(api.api, api_versions.API))


def answer_later(broker: RunningBroker, api: Put) -> None:
    request, answer = api.later.pop(0)
    broker.on_loop(lambda: request.respond(answer))


# --- reading


def test_requests_of_any_size_in_pieces_of_any_size(broker: RunningBroker) -> None:
    @examples(40, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        sizes = data.draw(
            st.lists(
                st.one_of(
                    st.integers(0, 300), st.integers(30_000, 36_000), st.integers(127_000, 135_000), st.integers(0, 700_000)
                ),
                min_size=1,
                max_size=12,
            )
        )
        draw = random.Random(data.draw(st.integers(0, 2**32)))
        sent = [draw.randbytes(size) for size in sizes]
        stream = b"".join(b"".join(request_chunks(put(records), VERSION, i, "raw")) for i, records in enumerate(sent))
        cuts = sorted({0, len(stream), *(draw.randrange(len(stream)) for _ in range(data.draw(st.integers(0, 30))))})
        with broker.client() as client:
            pieces = [stream[a:b] for a, b in pairwise(cuts)]
            writer = threading.Thread(target=lambda client=client, pieces=pieces: [*map(client.send_bytes, pieces)])
            writer.start()
            for i, records in enumerate(sent):
                client._asked.append((i, ProduceResponse, VERSION))
                assert checksum(client.receive()) == zlib.crc32(records)
            writer.join()

    run()


def test_requests_byte_by_byte(client: RawClient) -> None:
    for i in range(3):
        for byte in b"".join(request_chunks(put(b"abc"), VERSION, i, "raw")):
            client.send_bytes(bytes([byte]))
        client._asked.append((i, ProduceResponse, VERSION))
        assert checksum(client.receive()) == zlib.crc32(b"abc")


def test_many_requests_with_one_write_are_answered_in_their_order(client: RawClient) -> None:
    requests = [b"%d" % i for i in range(1000)]
    client.send_bytes(b"".join(b"".join(request_chunks(put(one), VERSION, i, "raw")) for i, one in enumerate(requests)))
    for i, one in enumerate(requests):
        client._asked.append((i, ProduceResponse, VERSION))
        assert checksum(client.receive()) == zlib.crc32(one)


def test_who_sends_many_requests_at_once_does_not_hold_up_others(broker: RunningBroker, api: Put, client: RawClient) -> None:
    other = broker.client()
    order: list[int] = []
    handle = api.handle

    def noted(node: Node, message: ProduceRequest, request: Request) -> ProduceResponse | Outcome:
        order.append(request.connection_id)
        return handle(node, message, request)

    api.handle = noted  # type: ignore[method-assign]
    many = b"".join(b"".join(request_chunks(put(b"", NEVER), VERSION, i, "raw")) for i in range(1500))
    one = b"".join(request_chunks(put(b"", AT_ONCE), VERSION, 7, "raw"))

    def both_at_once() -> None:
        """On the loop's thread, so that it finds both of them readable at its next look."""
        for served in broker.running.server.dispatcher._served.values():
            served.handle = noted
        client.send_bytes(many)
        other.send_bytes(one)

    client.ask(put(b""), VERSION)
    broker.on_loop(both_at_once)
    other.receive_frame()
    assert order.index(order[-1] if len(set(order)) == 1 else next(i for i in order if i != order[0])) < 200
    other.close()


# --- answering


def test_no_answer_is_wanted(client: RawClient) -> None:
    for _ in range(3):
        client.send(put(b"x", NEVER), VERSION)
        client.forget()
    assert checksum(client.ask(put(b"y"), VERSION)) == zlib.crc32(b"y")


def test_answered_before_the_handler_returns(client: RawClient) -> None:
    client.send(put(b"x"), VERSION)
    client.send(put(b"y", EARLY), VERSION)
    client.send(put(b"z"), VERSION)
    assert [checksum(client.receive()) for _ in range(3)] == [zlib.crc32(x) for x in (b"x", b"y", b"z")]


def test_what_comes_behind_a_request_that_is_answered_later_waits(broker: RunningBroker, api: Put, client: RawClient) -> None:
    for _ in range(3):
        client.send(put(b"a"), VERSION)
        client.send(put(b"b", LATER), VERSION)
        client.send(put(b"c" * 200_000), VERSION)
        client.send(put(b"d", LATER), VERSION)
        client.send(put(b"e"), VERSION)
        assert checksum(client.receive()) == zlib.crc32(b"a")
        assert api.came.acquire(timeout=PATIENCE_S)
        handled = api.handled
        with broker.client() as other:  # Whatever the loop was going to do with the rest, it has done by now.
            other.ask(put(b""), VERSION)
        assert api.handled == handled + 1
        answer_later(broker, api)
        assert checksum(client.receive()) == zlib.crc32(b"b")
        assert checksum(client.receive()) == zlib.crc32(b"c" * 200_000)
        assert api.came.acquire(timeout=PATIENCE_S)
        answer_later(broker, api)
        assert checksum(client.receive()) == zlib.crc32(b"d")
        assert checksum(client.receive()) == zlib.crc32(b"e")


def test_who_waits_for_an_answer_and_goes_is_noticed(broker: RunningBroker, api: Put) -> None:
    client = broker.client()
    client.send(put(b"b", WAIT), VERSION)
    assert api.came.acquire(timeout=PATIENCE_S)
    client.close()
    assert api.gone.acquire(timeout=PATIENCE_S)
    answer_later(broker, api)  # Nothing happens.
    assert broker.on_loop(lambda: len(broker.running.server.connections)) == 0


def test_who_does_not_read_gets_nothing_further_done(broker: RunningBroker, api: Put, client: RawClient) -> None:
    for _ in range(4):
        client.send(put(b"", LARGE), VERSION)
    with broker.client() as other:
        for _ in range(20):
            other.ask(put(b""), VERSION)
    assert broker.on_loop(lambda: api.handled) == 21  # one of the large ones: it waits to be read
    for _ in range(4):
        assert len(client.receive().responses) == 1000


# --- ending


@pytest.mark.parametrize("acks", [CLOSE, RAISE])
def test_a_handler_ends_the_connection(broker: RunningBroker, client: RawClient, acks: int) -> None:
    client.send(put(b"x"), VERSION)
    client.send(put(b"", acks), VERSION)
    assert checksum(client.receive()) == zlib.crc32(b"x")
    assert client.closed()
    with broker.client() as other:
        assert checksum(other.ask(put(b"x"), VERSION)) == zlib.crc32(b"x")


def test_a_stop_lets_requests_come_to_their_end(broker: RunningBroker, api: Put, client: RawClient) -> None:
    idle = broker.client()
    client.send(put(b"b", LATER), VERSION)
    assert api.came.acquire(timeout=PATIENCE_S)
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    assert idle.closed()
    with pytest.raises(ConnectionError):
        socket.create_connection(broker.address)
    answer_later(broker, api)
    assert checksum(client.receive()) == zlib.crc32(b"b")
    assert client.closed()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    assert broker.is_clean
    idle.close()


def test_a_stop_does_not_wait_for_who_only_waits(broker: RunningBroker, api: Put, client: RawClient) -> None:
    client.send(put(b"b", WAIT), VERSION)
    assert api.came.acquire(timeout=PATIENCE_S)
    broker.stop()
    assert client.closed()
    assert api.gone.acquire(timeout=PATIENCE_S)
    assert broker.is_clean


# --- ApiVersions, and what is not served


def test_api_versions_tells_what_is_served(broker: RunningBroker, client: RawClient) -> None:
    for version in range(5):
        response = client.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1.0-x"), version)
        assert response.error_code == ErrorCode.NONE
        told = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        assert told == {0: (0, 11), 18: (0, 4)}


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "a\n"])
def test_a_client_has_a_proper_name(client: RawClient, name: str) -> None:
    for given_names in ((name, "1"), ("a", name)):
        response = client.ask(ApiVersionsRequest(*given_names), 3)
        assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
