"""The start of a member under KRaft: nobody can connect before its metadata has a broker that clients may see."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.cluster.fake_controller import CLUSTER_ID
from tests.broker.cluster.test_kraft_plane import Controllers
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.startup import manager_of, serving
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.clock import SystemClock
from tidelog.metadata import records as r
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest

NODE_ID = 9


class Start:
    """A member, and controllers that first tell it that it is unfenced, and then write it to the metadata."""

    def __init__(self) -> None:
        self.controllers = Controllers()
        self.controllers.controller.answers[BrokerHeartbeatRequest] = self._beaten
        self.may_serve = False
        self.asked = asyncio.Semaphore(0)
        """Released with each heartbeat of a member that wants to be unfenced."""
        self.serves = asyncio.Event()
        self.stop = asyncio.Event()

    def _beaten(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        response = self.controllers.beaten(request)
        response.is_fenced |= not self.may_serve
        if not request.want_fence:
            self.asked.release()
        return response

    async def heartbeats(self) -> None:
        """Wait for the third one from now on: by then the member knows the answer to the second."""
        while not self.asked.locked():
            await self.asked.acquire()
        for _ in range(3):
            await self.asked.acquire()

    def unfence(self) -> None:
        self.controllers.quorum.append(r.BrokerRegistrationChangeRecord(NODE_ID, self.controllers.broker_epoch, fenced=-1))

    def is_refused(self) -> bool:
        (request,) = self.controllers.controller.requests(BrokerRegistrationRequest)
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", request.listeners[0].port)).close()
            return False
        return True

    @contextlib.asynccontextmanager
    async def started(self, folder: Path) -> AsyncIterator[asyncio.Task[None]]:
        controller = await self.controllers.controller.start()
        ids = {"version": "1", "cluster.id": CLUSTER_ID, "node.id": str(NODE_ID), "directory.id": "AAAAEAAAAAAAAAAAAAAAAA"}
        (folder / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in ids.items()))
        config = BrokerConfig.from_properties(
            {
                "process.roles": "broker",
                "node.id": str(NODE_ID),
                "controller.quorum.voters": f"3000@127.0.0.1:{controller.port}",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "broker.heartbeat.interval.ms": "20",
                "controlled.shutdown.enable": "false",
            }
        )
        manager = manager_of(folder, SystemClock(), config, {})

        async def serve() -> None:
            async with serving(manager, config, SystemClock()):
                self.serves.set()
                await self.stop.wait()

        task = asyncio.create_task(serve())
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield task
        finally:
            manager.shutdown()
            await controller.stop()


def test_clients_are_refused_until_they_may_see_the_broker(tmp_path: Path) -> None:
    async def go() -> None:
        start = Start()
        async with start.started(tmp_path) as task:
            await start.heartbeats()
            assert start.is_refused()
            start.may_serve = True
            await start.heartbeats()
            assert start.is_refused(), "the metadata does not have it yet"
            start.unfence()
            await start.serves.wait()
            assert not start.is_refused()
            start.stop.set()
            await task

    asyncio.run(go())


def test_a_stop_while_the_controllers_let_it_wait(tmp_path: Path) -> None:
    async def go() -> None:
        start = Start()
        async with start.started(tmp_path) as task:
            await start.heartbeats()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert start.is_refused()
            assert not start.serves.is_set()

    asyncio.run(go())
