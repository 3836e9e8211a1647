"""The metadata log of a quorum, followed: elections, snapshots, what is not committed, what cannot be true."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster.fake_controller import CLUSTER_ID, FakeController, FakeQuorum
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.kraft import metadata_fetcher
from tidelog.broker.cluster.kraft.controller_channel import Channels
from tidelog.broker.cluster.kraft.metadata_copy import MetadataCopy
from tidelog.broker.cluster.kraft.metadata_fetcher import MetadataFetcher
from tidelog.broker.cluster.kraft.metadata_loader import MetadataLoader
from tidelog.broker.cluster.kraft.quorum import Quorum
from tidelog.broker.cluster.kraft.snapshot_fetcher import SnapshotFetcher
from tidelog.broker.peers.channel import Channel
from tidelog.errors import CorruptDataError, InvalidArgumentError, InvalidRecordError, UnsupportedVersionError
from tidelog.metadata import records as r
from tidelog.metadata.batches import build_batch, build_snapshot
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.reader.metadata_log import read_metadata_log
from tidelog.records.batch import iter_headers
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import fetch as f
from tidelog.wire.messages import fetch_snapshot as s

TOPIC = uuid.UUID(int=77)

connect = partial(Channel, client_id="test", timeout_s=1.0, connect_timeouts_s=(1.0, 1.0))


class Follower:
    """A fetcher on its own, with what it published."""

    def __init__(self, quorum: Quorum, folder: Path, **options: Any) -> None:
        self.quorum = quorum
        self.image = MetadataImage()
        self.deltas: list[str] = []
        self.may_publish = asyncio.Event()
        self.may_publish.set()
        self.channels = Channels(connect)
        self.fetcher = MetadataFetcher(
            quorum,
            self.channels,
            MetadataLoader(self.image, self._published),
            SnapshotFetcher(folder / "__cluster_metadata-0", 9, CLUSTER_ID),
            node_id=9,
            cluster_id=options.pop("cluster_id", CLUSTER_ID),
            directory_id=uuid.UUID(int=5),
            retry_s=0.01,
            moved=lambda: None,
        )
        self.task = asyncio.ensure_future(self.fetcher.run())

    async def _published(self, delta: MetadataDelta) -> None:
        assert delta.image is self.image
        self.deltas.append(repr(delta))
        await self.may_publish.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.channels.close()


@contextlib.asynccontextmanager
async def following(
    tmp_path: Path, quorum: FakeQuorum, *controllers: FakeController, voters: bool = True, **options: Any
) -> AsyncIterator[Follower]:
    for one in controllers:
        await one.start()
    addresses = {one.node_id: ("127.0.0.1", one.port) for one in controllers}
    known = Quorum(addresses) if voters else Quorum({}, [("127.0.0.1", controllers[0].port)])
    follower = Follower(known, tmp_path, **options)
    try:
        yield follower
    finally:
        await follower.stop()
        for one in controllers:
            await one.stop()


def topic(name: str, partitions: int = 1, topic_id: uuid.UUID = TOPIC) -> list[Any]:
    return [
        r.TopicRecord(name, topic_id),
        *(r.PartitionRecord(number, topic_id, replicas=[9], isr=[9], leader=9) for number in range(partitions)),
    ]


def test_follows_the_log(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(*topic("orders", 3))
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await follower.until(lambda: "orders" in follower.image.topics)
            assert follower.fetcher.end_offset == quorum.end_offset
            assert follower.fetcher.is_caught_up
            quorum.append(r.ConfigRecord(r.TOPIC_RESOURCE, "orders", "retention.ms", "1"))
            await follower.until(lambda: follower.image.topic_config("orders") == {"retention.ms": "1"})
            assert len(follower.deltas) == 2
            assert len(follower.image.topics["orders"].partitions) == 3

    asyncio.run(go())


def test_only_what_is_committed_is_replayed(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        controller = FakeController(quorum)
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            quorum.append(*topic("orders"), commit=False)
            offset = quorum.end_offset
            await follower.until(lambda: any(one.topics[0].partitions[0].fetch_offset == offset for one in fetches(controller)))
            assert not follower.image.topics
            quorum.commit()
            await follower.until(lambda: "orders" in follower.image.topics)

    asyncio.run(go())


def fetches(controller: FakeController) -> list[f.FetchRequest]:
    return controller.requests(f.FetchRequest)


def test_a_leader_that_waits_for_its_followers_is_asked_again_soon(tmp_path: Path) -> None:
    """Before KIP-1166 a commit alone answers no Fetch: without short waits each change would come half a second late."""

    async def go() -> None:
        quorum = FakeQuorum()
        controller = FakeController(quorum)
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            quorum.append(*topic("orders"), commit=False)
            await follower.until(lambda: len(fetches(controller)) > 5)
            waits = [one.max_wait_ms for one in fetches(controller)]
            assert waits[0] == metadata_fetcher.MAX_WAIT_MS
            assert min(waits) == metadata_fetcher.FIRST_WAIT_MS

    asyncio.run(go())


def test_an_uncommitted_end_is_dropped_after_an_election(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        first, second = FakeController(quorum), FakeController(quorum, 3001)
        async with following(tmp_path, quorum, first, second) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            end = quorum.end_offset
            quorum.append(*topic("lost"), commit=False)
            lost_end = quorum.end_offset
            await follower.until(lambda: any(one.topics[0].partitions[0].fetch_offset == lost_end for one in fetches(first)))
            quorum.cut(end)
            quorum.elect(3001)
            quorum.append(*topic("kept", topic_id=uuid.UUID(int=78)))
            await follower.until(lambda: "kept" in follower.image.topics)
            assert "lost" not in follower.image.topics
            assert follower.quorum.leader_id == 3001

    asyncio.run(go())


def test_what_is_being_replayed_is_not_replayed_again(tmp_path: Path) -> None:
    """An election falls into the replay: what was fetched after it goes, what is replayed does not."""

    async def go() -> None:
        quorum = FakeQuorum()
        first, second = FakeController(quorum), FakeController(quorum, 3001)
        async with following(tmp_path, quorum, first, second) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            quorum.append(*topic("first", topic_id=uuid.UUID(int=75)))
            start = quorum.end_offset
            await follower.until(lambda: follower.fetcher.end_offset == start)
            follower.may_publish.clear()
            before = len(follower.deltas)
            quorum.append(*topic("orders"))
            end = quorum.end_offset
            await follower.until(lambda: len(follower.deltas) > before)
            quorum.append(*topic("lost", topic_id=uuid.UUID(int=76)), commit=False)
            lost_end = quorum.end_offset
            await follower.until(lambda: any(one.topics[0].partitions[0].fetch_offset == lost_end for one in fetches(first)))
            quorum.cut(end)
            quorum.elect(3001)
            quorum.append(*topic("kept", topic_id=uuid.UUID(int=78)))
            kept_end = quorum.end_offset
            await follower.until(lambda: any(one.topics[0].partitions[0].fetch_offset == kept_end for one in fetches(second)))
            follower.may_publish.set()
            await follower.until(lambda: "kept" in follower.image.topics)
            assert start not in {one.topics[0].partitions[0].fetch_offset for one in fetches(second)}
            assert sorted(follower.image.topics) == ["first", "kept", "orders"]

    asyncio.run(go())


def test_the_controllers_may_change_places(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        controllers = [FakeController(quorum, 3000 + number) for number in range(3)]
        async with following(tmp_path, quorum, *controllers) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            await controllers[0].stop()
            quorum.elect(3002)
            quorum.append(*topic("orders"))
            await follower.until(lambda: "orders" in follower.image.topics)
            await controllers[0].start()
            quorum.elect(3000)
            quorum.append(*topic("more", topic_id=uuid.UUID(int=78)))
            await follower.until(lambda: "more" in follower.image.topics)
            controllers[0].is_deaf = True
            quorum.elect(3001)
            quorum.append(*topic("last", topic_id=uuid.UUID(int=79)))
            await follower.until(lambda: "last" in follower.image.topics)
            controllers[0].is_deaf = False

    asyncio.run(go())


def test_addresses_come_with_answers_where_only_bootstrap_servers_are_known(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(*topic("orders"))
        first, second = FakeController(quorum), FakeController(quorum, 3001)
        quorum.elect(3001)
        async with following(tmp_path, quorum, first, second, voters=False) as follower:
            await follower.until(lambda: "orders" in follower.image.topics)
            assert follower.quorum.leader == ("127.0.0.1", second.port)

    asyncio.run(go())


def large_image() -> MetadataImage:
    image = MetadataImage()
    image.replay(r.FeatureLevelRecord("metadata.version", 21))
    for number in range(700):
        for record in topic(f"topic-{number}", 2, uuid.UUID(int=1000 + number)):
            image.replay(record)
    return image


def test_a_snapshot_takes_the_place_of_what_the_leader_has_dropped(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(*topic("old"))
        controller = FakeController(quorum)
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: "old" in follower.image.topics)
            await controller.stop()
            quorum.append(r.RemoveTopicRecord(TOPIC))
            quorum.take_snapshot(large_image())
            quorum.append(*topic("new", topic_id=uuid.UUID(int=2)))
            await controller.start()
            await follower.until(lambda: "new" in follower.image.topics)
            assert len(follower.image.topics) == 701
            assert "old" not in follower.image.topics
            assert follower.deltas[1].startswith(f"MetadataDelta(deleted_topics={{{TOPIC!r}: 'old'}}")
            pieces = controller.requests(s.FetchSnapshotRequest)
            assert len(pieces) > 1, "in pieces"
            assert [path.name for path in (tmp_path / "__cluster_metadata-0").iterdir()] == [
                f"{quorum.start_offset:020}-0000000001.checkpoint"
            ]

    asyncio.run(go())


def test_a_snapshot_that_breaks_off_is_fetched_again(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.take_snapshot(large_image())
        controller = FakeController(quorum)
        refusals = iter([ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])

        def answer(request: s.FetchSnapshotRequest) -> s.FetchSnapshotResponse | None:
            (wanted,) = request.topics[0].partitions
            code = next(refusals, None) if wanted.position else None
            if code is None:
                return None
            result = s.PartitionSnapshotResult(0, code, unaligned_records=b"")
            return s.FetchSnapshotResponse(topics=[s.TopicSnapshotResult("__cluster_metadata", [result])])

        controller.answers[s.FetchSnapshotRequest] = answer
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: len(follower.image.topics) == 700)

    asyncio.run(go())


@pytest.mark.parametrize("damage", ["cut short", "a flipped bit"])
def test_a_damaged_snapshot_is_fetched_again(tmp_path: Path, damage: str) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.take_snapshot(large_image())
        assert quorum.snapshot is not None
        end_offset, epoch, whole = quorum.snapshot
        first = next(iter_headers(whole)).size
        bad = whole[:first] if damage == "cut short" else whole[:-1] + bytes([whole[-1] ^ 1])
        quorum.snapshot = end_offset, epoch, bad
        controller = FakeController(quorum)
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: len(controller.requests(s.FetchSnapshotRequest)) > 2)
            assert not follower.image.topics
            quorum.snapshot = end_offset, epoch, whole
            await follower.until(lambda: len(follower.image.topics) == 700)

    asyncio.run(go())


def test_a_snapshot_that_the_disk_refuses_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.take_snapshot(large_image())
        real, refused = os.write, iter([True, True])

        def write(fd: int, data: memoryview) -> int:
            if "__cluster_metadata-0" in str(Path(f"/proc/self/fd/{fd}").readlink()) and next(refused, False):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data)

        monkeypatch.setattr(os, "write", write)
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await follower.until(lambda: len(follower.image.topics) == 700)

    asyncio.run(go())


def test_a_metadata_transaction_counts_as_a_whole(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(r.BeginTransactionRecord("many"))
        quorum.append(*topic("orders"))
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            assert not follower.image.topics
            quorum.append(r.EndTransactionRecord())
            await follower.until(lambda: "orders" in follower.image.topics)
            assert len(follower.deltas) == 1

    asyncio.run(go())


def test_the_loop_turns_while_much_is_replayed(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        for number in range(40):
            quorum.append(*(one for n in range(50) for one in topic(f"t-{number}-{n}", 2, uuid.uuid4())))
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await follower.until(lambda: bool(follower.image.topics))
            seen = [len(follower.image.topics)]
            while seen[-1] < 2000:
                await asyncio.sleep(0)
                if len(follower.image.topics) != seen[-1]:
                    seen.append(len(follower.image.topics))
            assert len(seen) > 5, "others have had their turn meanwhile"

    asyncio.run(go())


# --- what ends the broker


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (r.PartitionRecord(0, uuid.UUID(int=404)), InvalidRecordError),
        (r.PartitionChangeRecord(0, uuid.UUID(int=404)), InvalidRecordError),
    ],
)
def test_records_that_do_not_fit_end_it(tmp_path: Path, record: Any, error: type[Exception]) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(record)
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            with pytest.raises(error):
                await follower.until(lambda: False)

    asyncio.run(go())


def test_a_record_of_a_newer_kafka_ends_it(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum._add(build_batch([bytes([1, 120, 0, 0])], quorum.end_offset, 1, 0), 1, True)
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            with pytest.raises(UnsupportedVersionError, match="newer Kafka"):
                await follower.until(lambda: False)

    asyncio.run(go())


def test_a_record_of_a_newer_kafka_in_a_snapshot_ends_it(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.snapshot = quorum.end_offset, quorum.epoch, b"".join(build_snapshot([bytes([1, 120, 0, 0])], quorum.epoch, 0))
        quorum.start_offset, quorum.batches = quorum.end_offset, []
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            with pytest.raises(UnsupportedVersionError, match="newer Kafka"):
                await follower.until(lambda: False)

    asyncio.run(go())


def test_controllers_of_another_cluster_end_it(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        async with following(tmp_path, quorum, FakeController(quorum), cluster_id="BBBBBBBBQQCQAAAAAAAAAg") as follower:
            with pytest.raises(InvalidArgumentError, match="a different cluster"):
                await follower.until(lambda: False)

    asyncio.run(go())


def test_committed_metadata_that_is_gone_ends_it(tmp_path: Path) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        start = quorum.end_offset
        quorum.append(*topic("orders"))
        async with following(tmp_path, quorum, FakeController(quorum)) as follower:
            await follower.until(lambda: "orders" in follower.image.topics)
            quorum.cut(start)
            quorum.elect(3000)
            with pytest.raises(CorruptDataError, match="lost committed metadata"):
                await follower.until(lambda: False)

    asyncio.run(go())


@pytest.mark.parametrize("damage", ["a gap", "other partitions", "a broken checksum", "a lie"])
def test_a_leader_that_answers_nonsense_is_not_believed(tmp_path: Path, damage: str) -> None:
    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(*topic("orders"))
        controller = FakeController(quorum)
        nonsense = iter([True, True])

        def answer(request: f.FetchRequest) -> f.FetchResponse | None:
            if request.topics[0].partitions[0].current_leader_epoch != quorum.epoch or not next(nonsense, False):
                return None
            data = f.PartitionData(0, high_watermark=100, current_leader=f.LeaderIdAndEpoch(3000, quorum.epoch), records=b"")
            if damage == "a gap":
                data.records = quorum.batches[-1]
            elif damage == "a lie":
                data.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            elif damage == "a broken checksum":
                data.records = quorum.batches[0][:-1] + bytes([quorum.batches[0][-1] ^ 1])
            count = 2 if damage == "other partitions" else 1
            return f.FetchResponse(responses=[f.FetchableTopicResponse(partitions=[data] * count)])

        controller.answers[f.FetchRequest] = answer
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: "orders" in follower.image.topics)
            assert next(iter_headers(quorum.batches[-1])).next_offset == follower.fetcher.end_offset

    asyncio.run(go())


# --- the folder's own copy


def test_the_next_start_goes_on_from_the_copy(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"

    async def go() -> None:
        quorum = FakeQuorum()
        quorum.append(r.FeatureLevelRecord("metadata.version", 21))
        for number in range(700):
            quorum.append(*topic(f"topic-{number}", 2, uuid.UUID(int=1000 + number)))
        quorum.append(r.PartitionChangeRecord(0, uuid.UUID(int=1000), leader=4))
        controller = FakeController(quorum)
        async with following(tmp_path, quorum, controller) as follower:
            await follower.until(lambda: follower.fetcher.is_caught_up)
            copy = MetadataCopy(folder, follower.fetcher, follower.fetcher._loader)
            await copy.write()
            (first,) = folder.iterdir()
            assert first.name == f"{quorum.end_offset:020}-0000000001.checkpoint"
            await copy.write()
            assert list(folder.iterdir()) == [first], "nothing has changed"
            quorum.append(*topic("new"))
            await follower.until(lambda: "new" in follower.image.topics)
            await copy.write()
            (second,) = folder.iterdir()
            assert second.name > first.name
            follower.fetcher.is_between_batches = False
            quorum.append(*topic("newer", topic_id=uuid.UUID(int=3)))
            await follower.until(lambda: "newer" in follower.image.topics)
            follower.fetcher.is_between_batches = False
            await copy.write()
            assert list(folder.iterdir()) == [second], "a replay that was cut short is not kept"
        log = read_metadata_log(tmp_path)
        assert log is not None
        assert len(log.image.topics) == 701, "tools see it"
        assert log.image.topics["topic-0"].partitions[0].leader_epoch == 0

        await controller.start()
        channels = Channels(connect)
        image = MetadataImage()
        deltas: list[MetadataDelta] = []

        async def published(delta: MetadataDelta) -> None:
            deltas.append(delta)

        loader = MetadataLoader(image, published)
        fetcher = MetadataFetcher(
            Quorum({3000: ("127.0.0.1", controller.port)}),
            channels,
            loader,
            SnapshotFetcher(folder, 9, CLUSTER_ID),
            node_id=9,
            cluster_id=CLUSTER_ID,
            directory_id=uuid.UUID(int=5),
            retry_s=0.01,
            moved=lambda: None,
        )
        (folder / f"{quorum.end_offset + 5:020}-0000000001.checkpoint").write_bytes(b"no snapshot")
        await MetadataCopy(folder, fetcher, loader).load()
        assert len(image.topics) == 701
        controller.seen.clear()
        task = asyncio.ensure_future(fetcher.run())
        async with asyncio.timeout(PATIENCE_S):
            while "newer" not in image.topics:
                await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        channels.close()
        await controller.stop()
        assert fetches(controller)[0].topics[0].partitions[0].fetch_offset == int(second.name[:20])
        assert image.topics["topic-0"].partitions[0].leader_epoch == 0, "no record counts twice"
        assert len(deltas) == 2

    asyncio.run(go())
