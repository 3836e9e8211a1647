"""A snapshot of the metadata whose write is cancelled: the thread that writes it is waited for, because it uses the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.broker.cluster.fake_controller import FakeController, FakeQuorum
from tests.broker.cluster.test_metadata_fetcher import Follower, following, large_image, topic
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.kraft import metadata_copy, snapshot_fetcher
from tidelog.broker.cluster.kraft.metadata_copy import MetadataCopy


class Held:
    """A function of another thread that waits until it may go on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.begun = Event()
        self.may_end = Event()
        self.has_ended = False

    def __call__(self, *args: Any) -> Any:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_S)
        result = self.function(*args)
        self.has_ended = True
        return result


async def cancelled_within(held: Held, task: asyncio.Task[None], stop: Callable[[], Awaitable[object]]) -> None:
    """Cancel a task while the function is under way: the task ends only after it."""
    assert await asyncio.to_thread(held.begun.wait, PATIENCE_S)
    stopping = asyncio.ensure_future(stop())
    for _ in range(20):
        await asyncio.sleep(0)
    was_over = task.done()
    held.may_end.set()
    await asyncio.gather(stopping, return_exceptions=True)
    assert not was_over
    assert held.has_ended


@pytest.mark.parametrize("name", ["_begin", "_write", "_finish"])
def test_a_fetched_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    held = Held(getattr(snapshot_fetcher, name))
    monkeypatch.setattr(snapshot_fetcher, name, held)
    folder = tmp_path / "__cluster_metadata-0"

    async def go() -> None:
        quorum = FakeQuorum()
        quorum.take_snapshot(large_image())
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await cancelled_within(held, follower.task, follower.stop)
            assert not list(folder.glob("*.part"))
            assert len(list(folder.iterdir())) == (name == "_finish")

    asyncio.run(go())


def test_an_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(metadata_copy._write)
    monkeypatch.setattr(metadata_copy, "_write", held)
    folder = tmp_path / "__cluster_metadata-0"

    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(*topic("orders"))
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            task = asyncio.ensure_future(writing(follower))

            async def stop() -> None:
                task.cancel()
                await task

            await cancelled_within(held, task, stop)
            assert [path.suffix for path in folder.iterdir()] == [".checkpoint"]

    async def writing(follower: Follower) -> None:
        await MetadataCopy(folder, follower.fetcher, follower.fetcher._loader).write()

    asyncio.run(go())
