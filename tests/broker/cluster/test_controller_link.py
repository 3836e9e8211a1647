"""Requests to a controller of ZooKeeper's days: in versions that it takes, whatever this broker would like to say."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from functools import partial

import pytest

from tests.patience import PATIENCE_S
from tidelog.broker.cluster.zookeeper.controller_link import ControllerLink
from tidelog.broker.peers.channel import Channel
from tidelog.errors import UnsupportedVersionError
from tidelog.wire.headers import response_chunks
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def asked_of(newest: int | None, at_most: int) -> list[int]:
    """Return the versions of AlterPartition that a controller is asked in which takes them up to `newest` (None: no version)."""
    asked: list[int] = []
    offered = [ApiVersion(ApiVersionsRequest.API_KEY, 0, 3)]
    if newest is not None:
        offered.append(ApiVersion(AlterPartitionRequest.API_KEY, 0, newest))

    served: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        while size := await reader.read(4):
            frame = await reader.readexactly(struct.unpack(">i", size)[0])
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == AlterPartitionRequest.API_KEY:
                asked.append(version)
                writer.writelines(response_chunks(AlterPartitionResponse(), version, correlation_id))
            else:
                code = 0 if version <= 3 else 35
                writer.writelines(response_chunks(ApiVersionsResponse(code, offered), version if not code else 0, correlation_id))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def ask() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        link = ControllerLink(lambda: (host, port), partial(Channel, client_id="test", timeout_s=PATIENCE_S), PATIENCE_S)
        try:
            await link.call(AlterPartitionRequest(1, 2), at_most=at_most)
        finally:
            link.close()
            server.close()
            await asyncio.gather(*filter(None, served))

    asyncio.run(ask())
    return asked


@pytest.mark.parametrize(("newest", "at_most", "version"), [(0, 2, 0), (1, 2, 1), (2, 2, 2), (3, 2, 2), (3, 1, 1), (0, 1, 0)])
def test_a_version_that_both_take(newest: int, at_most: int, version: int) -> None:
    """Controllers of 2.7 take version 0, of 3.2 version 1, of 3.3 topics by their ids."""
    assert asked_of(newest, at_most) == [version]


def test_a_controller_that_is_too_old() -> None:
    with pytest.raises(UnsupportedVersionError, match="and this broker share no version of AlterPartition"):
        asked_of(None, 2)
