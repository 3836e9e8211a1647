"""Three controllers of Apache Kafka behind proxies, three brokers on disks that can fill, and what a fault does to them."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.broker.raw import RawClient
from tests.cluster_soak.controller_proxies import ControllerProxies
from tests.cluster_soak.schedule import Fault
from tests.cluster_soak.small_disk import SmallDisk, is_inside
from tests.kafka import pausing
from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import free_port, wait_until
from tests.kafka.tidelog_node import TidelogNode
from tidelog.wire.messages.metadata import MetadataRequest

KINDS = {
    "tidelog": (["tidelog"] * 3, "3.9.1"),
    "mixed": (["tidelog", "kafka", "tidelog"], "3.9.1"),
    "mixed-4.2": (["tidelog", "kafka", "tidelog"], "4.2.0"),
    "tidelog-4.2": (["tidelog"] * 3, "4.2.0"),
    "kafka": (["kafka"] * 3, "3.9.1"),
}
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "5",
    "log.retention.ms": "-1",
    "initial.broker.registration.timeout.ms": "180000",
}
SYNC_S = 600
ASK_S = 5
METADATA_VERSION = 12


class SoakCluster:
    """Brokers 1 to 3, controllers 3000 to 3002. Leaving ends all of them."""

    def __init__(self, folder: Path, brokers: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.kinds, release = KINDS[brokers]
        self._stack = ExitStack()
        self._kafka = KafkaCluster(folder, controllers=3, release=release, properties=PROPERTIES)
        self.controllers = {one.node_id: one for one in self._kafka.controllers}
        self.brokers: dict[int, KafkaNode | TidelogNode] = {}
        self._disks: dict[int, SmallDisk] = {}
        self._proxies = ControllerProxies(range(1, len(self.kinds) + 1), [one.port for one in self._kafka.controllers])

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self._proxies)
            self._stack.enter_context(self._kafka)
            for node_id, kind in enumerate(self.kinds, 1):
                data = self.folder / f"broker-{node_id}" / "data"
                if is_inside():
                    self._disks[node_id] = SmallDisk(data)
                self.brokers[node_id] = self._new(node_id, kind, data)
            for broker in self.brokers.values():
                broker.start(waits=False)
            for broker in self.brokers.values():
                broker.wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def _new(self, node_id: int, kind: str, data: Path) -> KafkaNode | TidelogNode:
        ports = zip(self.controllers, self._proxies.ports(node_id), strict=True)
        voters = {"controller.quorum.voters": ",".join(f"{controller}@127.0.0.1:{port}" for controller, port in ports)}
        if kind == "tidelog":
            return TidelogNode(self._kafka, node_id, voters)
        port = free_port()
        properties = {**self._kafka.member_properties(node_id, port, data), **voters}
        node = KafkaNode(self._kafka.release, data.parent, node_id, port, properties, 384)
        self._kafka.format(node.data, node_id)
        return node

    def _end(self) -> None:
        for broker in self.brokers.values():
            with contextlib.suppress(ProcessLookupError):
                broker.kill()
        self._stack.close()
        for disk in self._disks.values():
            disk.unmount()

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers.values())

    @property
    def has_disks(self) -> bool:
        """Whether disks can be full."""
        return bool(self._disks)

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", self.brokers[node_id].port

    # --- faults

    def run(self, fault: Fault) -> Generator[None]:
        """Do it: the iterator stops while it lasts, once or more often, and ends when it is over and the nodes run again."""
        name = fault.kind.removeprefix("controller-")
        if name == "roll":
            for node_id in self.brokers:
                self.brokers[node_id].stop()
                self._start(self.brokers[node_id])
                self.wait_in_sync()
                yield
            return
        node = (self.controllers if fault.kind.startswith("controller-") else self.brokers)[fault.target]
        if name == "kill-two":
            nodes = [node, self.brokers[fault.target % len(self.brokers) + 1]]
            for one in nodes:
                one.kill()
            yield
            for one in nodes:
                one.start(waits=False)
            for one in nodes:
                one.wait()
            return
        begin, end = {
            "kill": (node.kill, lambda: self._start(node)),
            "restart": (node.stop, lambda: self._start(node)),
            "pause": (lambda: pausing.pause(pid(node)), lambda: pausing.go_on(pid(node))),
            "cut-off": (lambda: self._proxies.cut_off(fault.target), self._proxies.cut_off),
            "full-disk": (lambda: self._disks[fault.target].fill(), lambda: self._room_again(fault.target)),  # noqa: PLW0108 - not all have one
        }[name]
        begin()
        yield
        end()

    def _room_again(self, node_id: int) -> None:
        """Empty a disk; a broker that ended because of it (Kafka's do, their only folder being gone) is started again."""
        self._disks[node_id].empty()
        broker = self.brokers[node_id]
        if not is_running(broker):
            broker.kill()
            self._start(broker)

    def _start(self, node: KafkaNode | TidelogNode) -> None:
        node.start(waits=False)
        node.wait()

    # --- what the brokers say

    def partitions(self, node_id: int) -> dict[tuple[str, int], Any]:
        """Return the partitions as this broker knows them; OSError where it does not answer, or does not see all brokers."""
        with RawClient(self.address(node_id), timeout_s=ASK_S) as client:
            found = client.ask(MetadataRequest(topics=None), METADATA_VERSION)
        if {one.node_id for one in found.brokers} != set(self.brokers):
            raise OSError("not all brokers are there")
        return {(topic.name, one.partition_index): one for topic in found.topics for one in topic.partitions}

    def wait_for_brokers(self) -> None:
        """Wait until each broker knows all of them."""
        wait_until(lambda: self._seen() is not None, "all brokers to know each other", SYNC_S)

    def _seen(self) -> list[dict[tuple[str, int], Any]] | None:
        """Return the partitions as each broker knows them; None where one does not answer, or does not see all brokers."""
        try:
            return [self.partitions(node_id) for node_id in self.brokers]
        except (OSError, AssertionError):
            return None

    def is_in_sync(self) -> bool:
        """Whether each broker says that all replicas of all partitions are in sync, and names the same leaders."""
        seen = self._seen()
        if seen is None:
            return False
        leaders = [{place: (one.leader_id, one.leader_epoch) for place, one in found.items()} for found in seen]
        everyone = set(self.brokers)
        return all(found == leaders[0] for found in leaders) and all(
            set(one.isr_nodes) == everyone and one.leader_id in everyone for found in seen for one in found.values()
        )

    def wait_in_sync(self) -> float:
        """Wait for that, and return the seconds that it took."""
        began = time.monotonic()
        for node in (*self.brokers.values(), *self.controllers.values()):
            if not is_running(node):
                raise RuntimeError(f"{node.folder.name} has ended by itself: {log_of(node)[-3000:]}")
        wait_until(self.is_in_sync, f"all replicas to be in sync: {self._missing()}", SYNC_S)
        return time.monotonic() - began

    def _missing(self) -> Mapping[tuple[str, int], object]:
        with contextlib.suppress(OSError, AssertionError):
            return {place: one.isr_nodes for place, one in self.partitions(1).items() if len(one.isr_nodes) < len(self.brokers)}
        return {}


def pid(node: KafkaNode | TidelogNode) -> int:
    """Return the id of the process of a node that runs."""
    assert node.process is not None
    return node.process.pid


def is_running(node: KafkaNode | TidelogNode) -> bool:
    """Return whether its process has not ended."""
    if isinstance(node, KafkaNode):
        return node.process is not None and node.process.is_running()
    return node.process is not None and node.process.poll() is None


def log_of(node: KafkaNode | TidelogNode) -> str:
    """Return what it has logged."""
    return (node.folder / ("node.out" if isinstance(node, KafkaNode) else "tidelog.out")).read_text(errors="replace")
