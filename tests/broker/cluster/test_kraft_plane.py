"""A broker's life under controllers that say all that controllers may say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster.fake_controller import CLUSTER_ID, FakeController, FakeQuorum
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.kraft.broker_lifecycle import LEFT_S, BrokerLifecycle, BrokerState
from tidelog.broker.cluster.kraft.features import KNOWN, announced
from tidelog.broker.cluster.kraft.kraft_plane import KraftPlane
from tidelog.broker.coordinators.transactions.producer_id_source import ClusterProducerIds
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.errors import BrokerError, BrokerUnreachableError, InvalidArgumentError, StorageError, UnsupportedVersionError
from tidelog.metadata import records as r
from tidelog.model import TopicPartition
from tidelog.wire.codec import decode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataResult,
    PartitionDataResult,
    TopicDataResult,
)
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tidelog.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

KEY = TopicPartition("orders", 3)
FOLDER = uuid.UUID(int=1 << 100)
"""The directory id."""


class Controllers:
    """Controllers that register a broker and unfence it as Kafka's do."""

    def __init__(self) -> None:
        self.quorum = FakeQuorum()
        self.controller = FakeController(self.quorum)
        self.controller.answers[BrokerRegistrationRequest] = self.registered
        self.controller.answers[BrokerHeartbeatRequest] = self.beaten
        self.broker_epoch = -1
        self.refusals: list[int] = []
        self.heartbeat_errors: list[int] = []
        self.is_letting_go = False

    def registered(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        if self.refusals:
            return BrokerRegistrationResponse(error_code=self.refusals.pop(0))
        self.broker_epoch = self.quorum.end_offset
        ends = [r.BrokerEndpoint(one.name, one.host, one.port, 0) for one in request.listeners]
        self.quorum.append(r.RegisterBrokerRecord(request.broker_id, False, request.incarnation_id, self.broker_epoch, ends))
        return BrokerRegistrationResponse(broker_epoch=self.broker_epoch)

    def beaten(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if self.heartbeat_errors:
            return BrokerHeartbeatResponse(error_code=self.heartbeat_errors.pop(0))
        if request.broker_epoch != self.broker_epoch:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        is_caught_up = request.current_metadata_offset >= self.broker_epoch
        is_fenced = request.want_fence or not is_caught_up
        if request.want_shut_down:
            return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=False, should_shut_down=self.is_letting_go)
        return BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=is_fenced)


@contextlib.asynccontextmanager
async def plane_of(controllers: Controllers, tmp_path: Path, **properties: Any) -> AsyncIterator[KraftPlane]:
    controller = await controllers.controller.start()
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker",
            "node.id": "9",
            "controller.quorum.voters": f"3000@127.0.0.1:{controller.port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:19092",
            "broker.heartbeat.interval.ms": "20",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )
    assert config.cluster is not None
    plane = KraftPlane(
        config.cluster,
        cluster_id=CLUSTER_ID,
        directory_id=FOLDER,
        data_dir=tmp_path,
        listeners=config.listeners,
        rack="r1",
        previous_broker_epoch=7,
    )
    try:
        yield plane
    finally:
        await plane.stop()
        await controller.stop()


async def until(plane: KraftPlane, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            if plane.failure.done():
                plane.failure.result()
            await asyncio.sleep(0.002)


async def unfenced(plane: KraftPlane) -> None:
    plane.start()
    await until(plane, plane.lifecycle.caught_up.done)
    plane.lifecycle.ready_to_unfence()
    await until(plane, plane.lifecycle.unfenced.done)


def registrations(controllers: Controllers) -> list[BrokerRegistrationRequest]:
    return controllers.controller.requests(BrokerRegistrationRequest)


def test_registers_catches_up_and_is_unfenced(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            assert (plane.broker_epoch, plane.is_fenced, plane.is_alive(9)) == (-1, True, False)
            plane.start()
            await until(plane, plane.lifecycle.caught_up.done)
            assert plane.lifecycle.state is BrokerState.RECOVERY
            assert plane.is_fenced, "not before it is ready to serve"
            assert plane.image.brokers[9].broker_epoch == plane.broker_epoch == controllers.broker_epoch
            plane.lifecycle.ready_to_unfence()
            await until(plane, plane.lifecycle.unfenced.done)
            assert plane.lifecycle.state is BrokerState.RUNNING
            (request,) = registrations(controllers)
            assert (request.broker_id, request.cluster_id, request.rack, request.previous_broker_epoch) == (
                9,
                CLUSTER_ID,
                "r1",
                7,
            )
            assert request.log_dirs == [FOLDER]
            assert [(one.name, one.host, one.port) for one in request.listeners] == [("PLAINTEXT", "127.0.0.1", 19092)]
            assert {one.name for one in request.features} == {"metadata.version", "kraft.version"}

    asyncio.run(go())


def test_who_is_alive_and_where(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            ends = [r.BrokerEndpoint("PLAINTEXT", "one", 1, 0), r.BrokerEndpoint("OTHER", "two", 2, 0)]
            controllers.quorum.append(r.RegisterBrokerRecord(4, False, uuid.uuid4(), 40, ends))
            await until(plane, lambda: 4 in plane.image.brokers)
            assert (plane.is_alive(4), plane.is_eligible(4, 40), plane.endpoint(4)) == (False, False, None)
            controllers.quorum.append(r.BrokerRegistrationChangeRecord(4, 40, fenced=-1))
            await until(plane, lambda: plane.is_alive(4) or not plane.image.brokers[4].fenced)
            assert (plane.endpoint(4), plane.endpoint(4, "OTHER"), plane.endpoint(4, "NONE")) == (("one", 1), ("two", 2), None)
            assert [plane.is_eligible(4, epoch) for epoch in (40, -1, 39)] == [True, True, False]
            controllers.quorum.append(r.BrokerRegistrationChangeRecord(4, 40, in_controlled_shutdown=1))
            await until(plane, lambda: not plane.is_eligible(4, 40))
            assert plane.is_alive(4)
            assert (plane.is_alive(5), plane.is_eligible(5, -1), plane.endpoint(5)) == (False, False, None)

    asyncio.run(go())


def test_waits_until_its_former_self_is_fenced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        controllers = Controllers()
        controllers.refusals = [ErrorCode.DUPLICATE_BROKER_REGISTRATION]
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
        assert len(registrations(controllers)) == 2

    with caplog.at_level(logging.INFO, "tidelog.broker"):
        asyncio.run(go())
    assert "another broker with node.id=9 is running" in caplog.text


def test_a_node_id_that_stays_taken_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        controllers = Controllers()

        def now() -> float:  # The time is up once two requests were refused, however long those took.
            return 0.0 if len(registrations(controllers)) < 2 else 2.0 * PATIENCE_S

        monkeypatch.setattr("tidelog.broker.cluster.kraft.broker_lifecycle.monotonic", now)
        controllers.refusals = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 100
        async with plane_of(controllers, tmp_path, initial_broker_registration_timeout_ms=PATIENCE_S * 1000) as plane:
            with pytest.raises(
                BrokerUnreachableError, match=rf"not registered within {PATIENCE_S} s: another broker with node.id=9"
            ):
                await unfenced(plane)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, InvalidArgumentError, "a different cluster"),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersionError, "feature"),
        (ErrorCode.INVALID_REGISTRATION, InvalidArgumentError, "invalid"),
    ],
)
def test_what_waiting_does_not_help_ends_it_at_once(tmp_path: Path, code: ErrorCode, error: type[Exception], match: str) -> None:
    async def go() -> None:
        controllers = Controllers()
        controllers.refusals = [code]
        async with plane_of(controllers, tmp_path) as plane:
            with pytest.raises(error, match=match):
                await unfenced(plane)
            assert len(registrations(controllers)) == 1

    asyncio.run(go())


def test_a_feature_that_is_not_known_ends_it_before_it_registers(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        controllers.controller.features["time.travel.version"] = (0, 1, 1)
        async with plane_of(controllers, tmp_path) as plane:
            with pytest.raises(UnsupportedVersionError, match=r"time\.travel\.version"):
                await unfenced(plane)
            assert not registrations(controllers)

    asyncio.run(go())


def test_no_controller_ends_it_in_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path, initial_broker_registration_timeout_ms=1000) as plane:
            await controllers.controller.stop()
            # Not the 30 s that other requests have.
            with pytest.raises(
                BrokerUnreachableError, match=r"not registered within 1 s: could not connect .* within (1|0\.[0-9]+) s"
            ):
                await unfenced(plane)

    with caplog.at_level(logging.WARNING, "tidelog.broker"):
        asyncio.run(go())
    assert "waiting for the controllers (127.0.0.1:" in caplog.text


def test_a_registration_that_is_gone_is_made_again(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            before = plane.broker_epoch
            controllers.heartbeat_errors = [ErrorCode.BROKER_ID_NOT_REGISTERED]
            await until(plane, lambda: plane.broker_epoch > before and not plane.is_fenced)
            first, second = registrations(controllers)
            assert first.incarnation_id == second.incarnation_id

    asyncio.run(go())


def test_an_upgrade_to_3_7_registers_the_folder_and_assigns_the_replicas(tmp_path: Path) -> None:
    """Before it, controllers keep no directories: neither of brokers nor of replicas."""
    topic_id, refusals = uuid.uuid4(), [ErrorCode.UNKNOWN_SERVER_ERROR]

    async def go() -> None:
        controllers = Controllers()
        quorum, controller = controllers.quorum, controllers.controller
        quorum.append(r.FeatureLevelRecord("metadata.version", 16), r.TopicRecord("orders", topic_id))
        quorum.append(r.PartitionRecord(0, topic_id, [9], [9], leader=9))

        def amended(request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
            if refusals:
                return BrokerRegistrationResponse(error_code=refusals.pop())
            record = r.RegisterBrokerRecord(9, False, request.incarnation_id, controllers.broker_epoch, log_dirs=request.log_dirs)
            quorum.append(record)
            return BrokerRegistrationResponse(broker_epoch=controllers.broker_epoch)

        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            plane.assignments.placed(topic_id, plane.image.topics["orders"].partitions[0])
            epoch = plane.broker_epoch
            controller.answers[BrokerRegistrationRequest] = amended
            controller.answers[AssignReplicasToDirsRequest] = AssignReplicasToDirsResponse(
                directories=[DirectoryDataResult(FOLDER, [TopicDataResult(topic_id, [PartitionDataResult(0, 0)])])]
            )
            quorum.append(r.FeatureLevelRecord("metadata.version", 17))
            await until(plane, lambda: plane.image.brokers[9].log_dirs == [FOLDER] and not plane.assignments.pending)
            (assigned,) = controller.requests(AssignReplicasToDirsRequest)
            assert (assigned.broker_epoch, assigned.directories[0].id) == (epoch, FOLDER)
            beats = len(controller.requests(BrokerHeartbeatRequest))
            await until(plane, lambda: len(controller.requests(BrokerHeartbeatRequest)) > beats + 2)
            assert len(registrations(controllers)) == 3, "once, then refused, then taken"
            assert (plane.broker_epoch, plane.is_fenced) == (epoch, False)

    asyncio.run(go())


def test_another_process_with_its_id_ends_it(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            epoch = controllers.quorum.end_offset
            controllers.quorum.append(r.RegisterBrokerRecord(9, False, uuid.uuid4(), epoch))
            with pytest.raises(InvalidArgumentError, match=r"another broker has registered with this node\.id"):
                await until(plane, lambda: False)

    asyncio.run(go())


def test_controlled_shutdown_waits_for_leave(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            ending = asyncio.ensure_future(plane.lifecycle.shut_down_controlled(PATIENCE_S))
            beats = controllers.controller.requests
            await until(plane, lambda: sum(one.want_shut_down for one in beats(BrokerHeartbeatRequest)) > 1)
            assert not ending.done()
            controllers.is_letting_go = True
            assert await ending
            count = len(beats(BrokerHeartbeatRequest))
            await asyncio.sleep(0.2)
            assert len(beats(BrokerHeartbeatRequest)) == count, "the next start could not register until its session is over"
            assert plane.lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await plane.stop()
            assert plane.lifecycle.state is None

    asyncio.run(go())


def test_controlled_shutdown_ends_without_leave_at_its_deadline(tmp_path: Path) -> None:
    async def go() -> None:
        async with plane_of(Controllers(), tmp_path) as plane:
            assert not await plane.lifecycle.shut_down_controlled(0.05), "it was never registered"
            await unfenced(plane)
            assert not await plane.lifecycle.shut_down_controlled(0.05)

    asyncio.run(go())


def test_calls_find_the_active_controller(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            codes = iter([ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE])
            controllers.controller.answers[AllocateProducerIdsRequest] = lambda _: AllocateProducerIdsResponse(
                error_code=next(codes), producer_id_start=5000, producer_id_len=1000
            )
            assert await plane.producer_ids() == range(5000, 6000)
            controllers.controller.answers[AllocateProducerIdsRequest] = AllocateProducerIdsResponse(
                error_code=ErrorCode.STALE_BROKER_EPOCH
            )
            with pytest.raises(BrokerError, match="STALE_BROKER_EPOCH"):
                await plane.producer_ids()
            controllers.controller.answers[AllocateProducerIdsRequest] = AllocateProducerIdsResponse(
                error_code=ErrorCode.NOT_CONTROLLER
            )
            for timeout_s in (2, 20, 60):  # A slow machine may give no answer before the first deadline.
                with pytest.raises(BrokerUnreachableError, match=rf"within {timeout_s} s: ") as late:
                    await plane.call(AllocateProducerIdsRequest(9, 1), timeout_s=timeout_s)
                if "is not the active controller" in str(late.value):
                    break
            assert late.match(r"within \d+ s: 127.* is not the active controller")
            await controllers.controller.stop()
            with pytest.raises(BrokerUnreachableError, match=r"within 0\.2 s"):
                await plane.call(AllocateProducerIdsRequest(9, 1), timeout_s=0.2)

    asyncio.run(go())


def test_producer_ids_come_in_blocks_ahead_of_time(tmp_path: Path) -> None:
    async def go() -> None:
        controllers = Controllers()
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            starts = iter(range(0, 100_000, 100))
            controllers.controller.answers[AllocateProducerIdsRequest] = lambda _: AllocateProducerIdsResponse(
                producer_id_start=next(starts), producer_id_len=100
            )
            ids = ClusterProducerIds(plane)

            def asked() -> int:
                return len(controllers.controller.requests(AllocateProducerIdsRequest))

            assert not ids.has(1)
            await asyncio.gather(*(ids.reserve() for _ in range(10)))
            assert (ids.has(100), ids.has(101), asked()) == (True, False, 1)
            assert [ids.next_id() for _ in range(89)] == list(range(89))
            assert asked() == 1
            assert ids.next_id() == 89
            await until(plane, lambda: ids.has(110))
            assert asked() == 2
            assert [ids.next_id() for _ in range(30)] == list(range(90, 120)), "nobody waits where a block is at hand"
            controllers.controller.answers[AllocateProducerIdsRequest] = AllocateProducerIdsResponse(
                error_code=ErrorCode.STALE_BROKER_EPOCH
            )
            assert [ids.next_id() for _ in range(80)][-1] == 199
            with pytest.raises(StorageError):
                ids.next_id()
            for _ in range(2):
                with pytest.raises(BrokerError, match="STALE_BROKER_EPOCH"):
                    await ids.reserve()
            controllers.controller.answers[AllocateProducerIdsRequest] = AllocateProducerIdsResponse(
                producer_id_start=7000, producer_id_len=100
            )
            await ids.reserve()
            assert ids.next_id() == 7000

    asyncio.run(go())


@pytest.mark.parametrize(("host", "packed"), [("10.1.2.3", 4), ("::1", 16), ("fe80::1%eth0", 16)])
def test_requests_of_clients_are_sent_on_as_they_came(tmp_path: Path, host: str, packed: int) -> None:
    async def go() -> None:
        controllers = Controllers()
        answers = iter([EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER), EnvelopeResponse(b"the answer")])
        controllers.controller.answers[EnvelopeRequest] = lambda _: next(answers)
        async with plane_of(controllers, tmp_path) as plane:
            await unfenced(plane)
            assert (
                await plane.forward(memoryview(b"a request"), client_host=host, principal=("User", "ANONYMOUS")) == b"the answer"
            )
            sent = controllers.controller.requests(EnvelopeRequest)
            assert [one.request_data for one in sent] == [b"a request"] * 2
            assert len(sent[0].client_host_address) == packed
            assert sent[0].request_principal[:2] == b"\0\0"
            principal = decode(DefaultPrincipalData, 0, sent[0].request_principal, 2)
            assert (principal.type, principal.name, principal.token_authenticated) == ("User", "ANONYMOUS", False)
            controllers.controller.answers[EnvelopeRequest] = EnvelopeResponse(None, ErrorCode.UNSUPPORTED_VERSION)
            with pytest.raises(UnsupportedVersionError):
                await plane.forward(b"a request", client_host=host, principal=("User", "ANONYMOUS"))
            controllers.controller.answers[EnvelopeRequest] = EnvelopeResponse(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
                await plane.forward(b"a request", client_host=host, principal=("User", "ANONYMOUS"))

    asyncio.run(go())


# --- features


def test_each_finalized_feature_is_announced() -> None:
    supported = {"metadata.version": (7, 29), "kraft.version": (0, 1), "group.version": (0, 1), "share.version": (0, 2)}
    finalized = {"metadata.version": 27, "group.version": 1}
    found = {one.name: (one.min_supported_version, one.max_supported_version) for one in announced(supported, finalized, 4)}
    assert found == {
        "metadata.version": KNOWN["metadata.version"],
        "kraft.version": (0, 1),
        "group.version": (0, 1),
        "share.version": (0, 2),
    }
    assert [one.name for one in announced(supported, finalized, 3)] == ["metadata.version"], "no range may begin with 0"


@pytest.mark.parametrize("finalized", [{"metadata.version": 999}, {"transaction.version": 3}, {"unheard.of": 1}])
def test_a_level_that_is_not_known_is_one_clear_error(finalized: dict[str, int]) -> None:
    with pytest.raises(UnsupportedVersionError, match=next(iter(finalized))):
        announced({}, finalized, 4)
    announced({}, dict.fromkeys(finalized, 0) | {"metadata.version": 21}, 4)


# --- states


def test_an_end_in_any_state_is_the_end() -> None:
    async def go() -> None:
        async def call(request: Message, timeout_s: float) -> Message:
            raise AssertionError

        async def register(incarnation_id: uuid.UUID, timeout_s: float) -> BrokerRegistrationRequest:
            raise AssertionError

        for state in (None, *BrokerState):
            lifecycle = BrokerLifecycle(
                9, call=call, register=register, metadata_offset=int, heartbeat_s=1, session_s=1, registration_timeout_s=1
            )
            lifecycle.state = state
            lifecycle.end()
            lifecycle.end()
            assert lifecycle.state is None

    asyncio.run(go())


def test_a_broker_that_cannot_write_what_it_leads_asks_to_be_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only while it runs; and it stays fenced until all can be written again, or for so long."""

    async def go() -> None:
        asked: list[tuple[bool, bool]] = []
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []
        now_s = 1000.0
        monkeypatch.setattr("tidelog.broker.cluster.kraft.broker_lifecycle.monotonic", lambda: now_s)

        async def call(request: Message, timeout_s: float) -> Message:
            assert isinstance(request, BrokerHeartbeatRequest)
            asked.append((request.want_fence, request.want_shut_down))
            return BrokerHeartbeatResponse(
                is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down
            )

        async def register(incarnation_id: uuid.UUID, timeout_s: float) -> BrokerRegistrationRequest:
            raise AssertionError

        async def wants_fence() -> bool:
            await lifecycle._heartbeat()
            assert lifecycle.is_fenced == asked[-1][0]
            return asked[-1][0]

        lifecycle = BrokerLifecycle(
            9, call=call, register=register, metadata_offset=int, heartbeat_s=1, session_s=1, registration_timeout_s=1
        )
        lifecycle.unwritable = lambda is_led: next(iter(led if is_led else led + followed), None)
        led.append(KEY)
        lifecycle.state = BrokerState.STARTING
        assert await wants_fence() and lifecycle.state is BrokerState.RECOVERY
        lifecycle.ready_to_unfence()
        assert not await wants_fence() and lifecycle.state is BrokerState.RUNNING, "before that it leads nothing"
        assert await wants_fence() and lifecycle.state is BrokerState.RUNNING
        followed[:], led[:] = led, []
        assert await wants_fence(), "others lead it, but it cannot be written yet"
        followed.clear()
        assert not await wants_fence()
        followed.append(KEY)
        assert not await wants_fence(), "others lead it"
        led.append(KEY)
        assert await wants_fence()
        led.clear()
        now_s += LEFT_S - 1
        assert await wants_fence()
        now_s += 2
        assert not await wants_fence() and not await wants_fence(), "the others are served"
        led.append(KEY)
        lifecycle.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        await lifecycle._heartbeat()
        assert asked[-1] == (False, True)

    asyncio.run(go())
