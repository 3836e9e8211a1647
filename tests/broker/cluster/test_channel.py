"""`Channel` against a broker of ours, and against peers that break the protocol in all the ways there are."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import tidelog
from tests.patience import PATIENCE_S
from tidelog.broker.peers.channel import Channel
from tidelog.broker.peers.peer_connection import MAX_HANDSHAKE_BYTES, MAX_RESPONSE_BYTES
from tidelog.errors import BrokerUnreachableError, ProtocolError, SecurityProtocolError, UnsupportedVersionError
from tidelog.records.batch import iter_headers
from tidelog.wire.codec import decode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.headers import read_request_header, response_chunks
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.envelope import EnvelopeRequest
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


VERSIONS = [ApiVersion(ApiVersionsRequest.API_KEY, 0, 4), ApiVersion(MetadataRequest.API_KEY, 0, 12)]


def channel_to(broker: tidelog.Broker) -> Channel:
    return Channel("127.0.0.1", broker.port, client_id="test", timeout_s=PATIENCE_S)


@contextlib.asynccontextmanager
async def peer(serve: Serve, *, timeout_s: float = PATIENCE_S, **options: Any) -> AsyncIterator[Channel]:
    """A channel to a server that does what the test wants."""

    served_ones: list[asyncio.Task[None] | None] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served_ones.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    channel = Channel(host, port, client_id="test", timeout_s=timeout_s, **options)
    try:
        yield channel
    finally:
        channel.close()
        server.close()
        await asyncio.gather(*filter(None, served_ones))


async def request(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Version, correlation id and whole frame of the next request."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    _key, version, correlation_id = struct.unpack_from(">hhi", frame)
    return version, correlation_id, frame


def answer(writer: asyncio.StreamWriter, message: Message, version: int, correlation_id: int) -> None:
    writer.writelines(response_chunks(message, version, correlation_id))


async def handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    version, correlation_id, _ = await request(reader)
    answer(writer, ApiVersionsResponse(api_keys=VERSIONS), version, correlation_id)


def test_asks_a_broker_of_ours() -> None:
    async def ask(broker: tidelog.Broker) -> None:
        channel = channel_to(broker)
        response: MetadataResponse = await channel.call(MetadataRequest(topics=None))
        assert [(one.host, one.port) for one in response.brokers] == [("127.0.0.1", broker.port)]
        assert channel.is_connected
        assert channel.version_of(MetadataRequest) >= 12
        assert channel.offers(MetadataRequest, 9)
        assert not channel.offers(MetadataRequest, 99)
        with pytest.raises(UnsupportedVersionError, match="Envelope"):
            await channel.call(EnvelopeRequest())
        with pytest.raises(UnsupportedVersionError, match="does not support Metadata v99"):
            await channel.call(MetadataRequest(topics=None), version=99)
        assert channel.is_connected
        channel.close()
        channel.close()
        with pytest.raises(BrokerUnreachableError, match="closed"):
            await channel.call(DescribeClusterRequest())

    with tidelog.Broker() as broker:
        asyncio.run(ask(broker))


def test_answers_of_pipelined_requests_are_matched() -> None:
    async def ask(broker: tidelog.Broker) -> None:
        channel = channel_to(broker)
        calls = [
            channel.call(MetadataRequest(topics=None)) if n % 2 else channel.call(DescribeClusterRequest()) for n in range(40)
        ]
        answers = await asyncio.gather(*calls)
        assert [type(one).__name__ for one in answers[:2]] == ["DescribeClusterResponse", "MetadataResponse"]
        assert len({type(one) for one in answers[::2]}) == len({type(one) for one in answers[1::2]}) == 1
        channel.close()

    with tidelog.Broker() as broker:
        asyncio.run(ask(broker))


def test_record_bytes_are_views_of_the_frame() -> None:
    async def fetch(broker: tidelog.Broker) -> None:
        channel = channel_to(broker)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
        asked = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic("large", partitions=[wanted])])
        (topic,) = (await channel.call(asked, version=12)).responses
        records = topic.partitions[0].records
        assert isinstance(records, memoryview)
        assert len(records) < len(records.obj) < len(records) + 1000, "a view of the frame as received"
        assert sum(header.record_count for header in iter_headers(records)) == 300
        # A small answer afterwards does not overwrite what the large one's views see.
        kept = bytes(records)
        await channel.call(MetadataRequest(topics=None))
        assert bytes(records) == kept
        channel.close()

    with tidelog.Broker() as broker:
        broker.create_topic("large")
        for _ in range(3):
            broker.produce("large", [bytes(9_000)] * 100)
        asyncio.run(fetch(broker))


KNOWN = {FetchRequest.API_KEY: (1, 12)}
"""What is known of a peer that is not asked for its versions: `inter.broker.protocol.version` says it."""


@pytest.mark.parametrize("size", [MAX_HANDSHAKE_BYTES, 3 * MAX_HANDSHAKE_BYTES, 50 * MAX_HANDSHAKE_BYTES])
def test_the_first_answer_is_a_large_one(size: int) -> None:
    """A follower that knows its leader's versions begins with a Fetch."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length in (size, 10, size):
            version, correlation_id, _ = await request(reader)
            data = PartitionData(partition_index=0, records=bytes(length))
            answer(writer, FetchResponse(responses=[FetchableTopicResponse("t", partitions=[data])]), version, correlation_id)
            await writer.drain()

    async def ask() -> None:
        async with peer(serve, versions=KNOWN) as channel:
            for length in (size, 10, size):
                response: FetchResponse = await channel.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))
                records = response.responses[0].partitions[0].records
                assert records is not None and len(records) == length

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("serve", "error", "match"),
    [
        ("sends_nonsense", ProtocolError, "a different request"),
        ("wants_tls", SecurityProtocolError, "TLS"),
        ("closes_at_once", BrokerUnreachableError, "TLS or SASL"),
    ],
)
def test_a_peer_that_is_not_asked_for_its_versions_and_breaks_the_protocol(
    serve: str, error: type[Exception], match: str
) -> None:
    async def ask() -> None:
        async with peer(globals()[serve], versions=KNOWN) as channel:
            with pytest.raises(error, match=match):
                await channel.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))

    asyncio.run(ask())


def test_a_lost_connection_is_made_again() -> None:
    async def ask(broker: tidelog.Broker) -> None:
        channel = channel_to(broker)
        await channel.call(MetadataRequest(topics=None))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, broker.stop)
        with pytest.raises(BrokerUnreachableError):
            await channel.call(MetadataRequest(topics=None))
        await loop.run_in_executor(None, broker.start)
        await channel.call(MetadataRequest(topics=None))
        channel.close()

    with tidelog.Broker() as broker:
        asyncio.run(ask(broker))


def test_what_a_controller_says_of_features_is_kept() -> None:
    features = ApiVersionsResponse(
        api_keys=VERSIONS,
        supported_features=[SupportedFeatureKey("metadata.version", 1, 25), SupportedFeatureKey("kraft.version", 0, 1)],
        finalized_features_epoch=77,
        finalized_features=[FinalizedFeatureKey("metadata.version", 21, 21)],
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, correlation_id, frame = await request(reader)
        header, position = read_request_header(frame)
        assert (version, header.client_id) == (4, "test")
        assert decode(ApiVersionsRequest, version, frame, position).client_software_name == "tidelog"
        answer(writer, features, version, correlation_id)
        await reader.read()

    async def ask() -> None:
        async with peer(serve) as channel:
            await channel.connect()
            assert channel.supported_features == {"metadata.version": (1, 25), "kraft.version": (0, 1)}
            assert channel.finalized_features == {"metadata.version": 21}
            assert channel.finalized_features_epoch == 77

    asyncio.run(ask())


@pytest.mark.parametrize("newest", [3, 2, 0])
def test_an_older_peer_is_asked_in_a_version_that_it_knows(newest: int) -> None:
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            version, correlation_id, _ = await request(reader)
            asked.append(version)
            if version <= newest:
                answer(writer, ApiVersionsResponse(api_keys=VERSIONS), version, correlation_id)
            else:
                offered = [ApiVersion(ApiVersionsRequest.API_KEY, 0, newest)]
                error = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=offered)
                answer(writer, error, 0, correlation_id)

    async def ask() -> None:
        async with peer(serve) as channel:
            await channel.connect()
            assert channel.version_of(MetadataRequest) == 12

    asyncio.run(ask())
    assert asked == [4, 3 if newest == 3 else 0]


# --- peers that break the protocol


async def closes_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def sends_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def wants_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
    await reader.read()


async def first_answer_is_huge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", MAX_HANDSHAKE_BYTES + 1))
    await reader.read()


async def negative_size(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", -5))
    await reader.read()


async def ends_within_a_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await handshake(reader, writer)
    await request(reader)
    writer.write(struct.pack(">i", 100) + b"abc")


async def ends_within_a_large_frame(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await handshake(reader, writer)
    _, correlation_id, _ = await request(reader)
    writer.write(struct.pack(">ii", MAX_RESPONSE_BYTES, correlation_id) + bytes(1000))


async def announces_a_large_frame_unasked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await handshake(reader, writer)
    writer.write(struct.pack(">ii", MAX_RESPONSE_BYTES, 0))
    await reader.read()


async def wrong_correlation_id(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await handshake(reader, writer)
    version, correlation_id, _ = await request(reader)
    answer(writer, MetadataResponse(), version, correlation_id + 1)
    await reader.read()


async def answers_unasked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    version, correlation_id, _ = await request(reader)
    answer(writer, ApiVersionsResponse(api_keys=VERSIONS), version, correlation_id)
    answer(writer, ApiVersionsResponse(api_keys=VERSIONS), version, correlation_id)
    await reader.read()


async def message_is_cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await handshake(reader, writer)
    _, correlation_id, _ = await request(reader)
    writer.write(struct.pack(">iix", 6, correlation_id) + b"\x7f")
    await reader.read()


async def answers_the_first_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await handshake(reader, writer)
    await reader.read()


async def reports_an_error(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    version, correlation_id, _ = await request(reader)
    answer(writer, ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), version, correlation_id)
    await reader.read()


async def knows_no_version_of_its_own(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, correlation_id, _ = await request(reader)
        answer(writer, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0, correlation_id)


@pytest.mark.parametrize(
    ("serve", "error", "match"),
    [
        (closes_at_once, BrokerUnreachableError, "closed|reset"),
        (sends_nonsense, ProtocolError, "size"),
        (wants_tls, SecurityProtocolError, "TLS"),
        (first_answer_is_huge, ProtocolError, "size"),
        (negative_size, ProtocolError, "size"),
        (ends_within_a_frame, BrokerUnreachableError, "closed"),
        (ends_within_a_large_frame, BrokerUnreachableError, "closed"),
        (announces_a_large_frame_unasked, ProtocolError, "a different request"),
        (wrong_correlation_id, ProtocolError, "a different request"),
        (answers_unasked, ProtocolError, "a different request"),
        (message_is_cut, ProtocolError, "MetadataResponse|frame"),
        (reports_an_error, ProtocolError, "answers ApiVersions with an error"),
        (knows_no_version_of_its_own, ProtocolError, "answers ApiVersions with an error"),
    ],
)
def test_a_peer_that_breaks_the_protocol_gets_one_clear_error(serve: Serve, error: type[Exception], match: str) -> None:
    async def ask() -> None:
        async with peer(serve) as channel:
            with pytest.raises(error, match=match) as raised:
                await channel.call(MetadataRequest(topics=None))
                await channel.call(MetadataRequest(topics=None))
            assert channel.place in str(raised.value)
            assert not channel.is_connected

    asyncio.run(ask())


@pytest.mark.parametrize("serve", [never_answers, answers_the_first_only])
def test_no_answer_in_time_ends_the_connection_for_all_that_wait(serve: Serve) -> None:
    async def ask() -> None:
        async with peer(serve) as channel:
            if serve is answers_the_first_only:
                await channel.connect()
            calls = [channel.call(MetadataRequest(topics=None), timeout_s=0.05), channel.call(MetadataRequest(topics=None))]
            first, second = (
                await asyncio.gather(*calls, return_exceptions=True)
                if serve is answers_the_first_only
                else (
                    *await asyncio.gather(calls[0], return_exceptions=True),
                    None,
                )
            )
            if second is None:
                calls[1].close()
            else:
                assert isinstance(second, BrokerUnreachableError)
            assert isinstance(first, BrokerUnreachableError)
            assert "time" in str(first) or "within" in str(first)

    asyncio.run(ask())


def test_a_call_that_is_given_up_leaves_the_others_alone() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake(reader, writer)
        asked = [await request(reader) for _ in range(2)]
        for number, (version, correlation_id, _) in enumerate(asked):
            answer(writer, MetadataResponse(controller_id=number), version, correlation_id)
        await reader.read()

    async def ask() -> None:
        async with peer(serve) as channel:
            await channel.connect()
            given_up = asyncio.ensure_future(channel.call(MetadataRequest(topics=None)))
            await asyncio.sleep(0)
            given_up.cancel()
            answered = await channel.call(MetadataRequest(topics=None))
            assert answered.controller_id == 1
            assert given_up.cancelled()
            assert channel.in_flight == 0

    asyncio.run(ask())


def test_attempts_to_connect_are_spaced() -> None:
    async def ask() -> None:
        attempts = 0

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal attempts
            attempts += 1

        async with peer(count) as channel:
            began = asyncio.get_running_loop().time()
            while attempts < 4:
                with pytest.raises(BrokerUnreachableError):
                    await channel.call(MetadataRequest(topics=None))
        # At once, and 50, 100, 200 ms later, give or take a fifth.
        assert asyncio.get_running_loop().time() - began >= 0.8 * 0.35

    asyncio.run(ask())


def test_callers_share_one_attempt_to_connect_and_a_close_ends_it() -> None:
    async def ask() -> None:
        async with peer(never_answers) as channel:
            calls = [asyncio.ensure_future(channel.call(MetadataRequest(topics=None))) for _ in range(3)]
            while not channel._connecting:
                await asyncio.sleep(0)
            channel.close()
            for error in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(error, BrokerUnreachableError)

    asyncio.run(ask())


def test_a_slow_peer_gets_more_time_with_each_attempt() -> None:
    """One that takes longer for its handshake than the first attempt has is connected to in the end."""
    attempts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0.3)
        await handshake(reader, writer)
        await reader.read()

    async def ask() -> None:
        async with peer(serve, connect_timeouts_s=(0.02, PATIENCE_S)) as channel:
            with pytest.raises(BrokerUnreachableError, match="in time"):
                await channel.connect()
            while not channel.is_connected:
                with contextlib.suppress(BrokerUnreachableError):
                    await channel.connect()

    asyncio.run(ask())
    assert attempts >= 3


def test_nobody_listens() -> None:
    async def ask() -> None:
        server = await asyncio.start_server(never_answers, "127.0.0.1", 0)
        _, port = server.sockets[0].getsockname()
        server.close()
        await server.wait_closed()
        channel = Channel("127.0.0.1", port, client_id="test", timeout_s=PATIENCE_S)
        with pytest.raises(BrokerUnreachableError, match="cannot connect"):
            await channel.call(MetadataRequest(topics=None))
        channel.close()

    asyncio.run(ask())
