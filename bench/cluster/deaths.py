"""A broker that leads a third of a thousand partitions is killed, starts again, is stopped, and starts again.

| figure | from | to |
|---|---|---|
| kill to ack | `kill -9` | the next acknowledged record of a partition that it led, acks=all |
| election to ack | the controllers' record that the broker is fenced, which moves its leaders | the same |
| longest stall | | the longest wait of another client of the two others, from the kill until all is in sync |
| registration to unfenced | the controllers' record of its registration, after a clean stop | their record that it is unfenced |

The controllers notice a death when the session expires: after `broker.session.timeout.ms`, less up to one heartbeat interval.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from typing import NamedTuple

from confluent_kafka import KafkaException, Message, Producer

from bench.broker.requests import PRODUCE_VERSION, batch, frame, produce_request
from bench.cluster.sides import PATIENCE_S, Node, Side, ask, waited
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

MANY = "many-{}"
"""The topic with many partitions, one per side; the victim leads a third of them."""

BESIDE = "beside-{}"
"""A topic without replicas on the victim, for the other clients."""

VICTIM = 2
PREFERRED = 0
SEEN_PARTITIONS = 12


class Death(NamedTuple):
    """What clients measured at one kill and the starts after it. Times are in seconds, stalls in milliseconds."""

    kill_to_ack_s: float
    slowest_kill_to_ack_s: float
    election_to_ack_s: float
    stall_ms: float
    usual_ms: float
    unfenced_s: float


def prepare(side: Side, partitions: int) -> None:
    """Create the topics."""
    turns = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    side.create(MANY.format(side.name), [turns[number % 3] for number in range(partitions)], {"min.insync.replicas": "2"})
    side.create(BESIDE.format(side.name), [[0, 1], [1, 0]])


def death(side: Side, partitions: int) -> Death:
    """Kill the victim, start and stop it again, and measure."""
    node_id = side.ids[VICTIM]
    victim = side.nodes[node_id]
    led = [one.partition_index for one in side.partitions(MANY.format(side.name)) if one.leader_id == node_id]
    acks = _Acks(side, led[:SEEN_PARTITIONS])
    probers = [_Prober(side.nodes[side.ids[place]], BESIDE.format(side.name), place) for place in (0, 1)]
    killed_s, killed_ms = time.monotonic(), time.time_ns() // 1_000_000
    victim.kill()
    after = acks.wait(killed_s)
    waited(lambda: side.fenced_ms(node_id, killed_ms) >= 0, "the victim to be fenced")
    election_s = (side.fenced_ms(node_id, killed_ms) - killed_ms) / 1000
    # Followers must know their new leaders, and coordinators must have loaded their partitions, before results are read.
    waited(lambda: side.in_sync(MANY.format(side.name), partitions) == 2, "the others to be in sync")
    seen = [prober.figures() for prober in probers]
    victim.start()
    waited(lambda: side.in_sync(MANY.format(side.name), partitions) == 3, "the victim to be in sync")
    victim.stop()
    victim.start()
    waited(lambda: side.registered(node_id)[1] >= 0, "the victim to be unfenced")
    registered, unfenced = side.registered(node_id)
    waited(lambda: side.in_sync(MANY.format(side.name), partitions) == 3, "the victim to be in sync")
    _lead_again(side, partitions)
    middle = sorted(after)[len(after) // 2]
    return Death(
        middle,
        max(after),
        middle - election_s,
        max(one["longest_ms"] for one in seen),
        max(one["p50_ms"] for one in seen),
        (unfenced - registered) / 1000,
    )


def _lead_again(side: Side, partitions: int) -> None:
    """Make the victim leader again of the partitions of which it is the first replica."""
    topic, node_id = MANY.format(side.name), side.ids[VICTIM]
    wanted = list(range(VICTIM, partitions, 3))
    request = ElectLeadersRequest(PREFERRED, [TopicPartitions(topic, wanted)], PATIENCE_S * 1000)
    ask(side.first, request, 2, ElectLeadersResponse)
    waited(lambda: sum(one.leader_id == node_id for one in side.partitions(topic)) == len(wanted), "the victim to lead again")


class _Acks:
    """A producer that sends a record to each of some partitions every few milliseconds with acks=all, and notes when each is
    acknowledged.
    """

    def __init__(self, side: Side, partitions: list[int]) -> None:
        self._partitions = partitions
        self._topic = MANY.format(side.name)
        self._sent: dict[int, float] = {}
        self._acknowledged: dict[int, list[tuple[float, float]]] = {one: [] for one in partitions}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": side.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="acks", daemon=True)
        self._thread.start()
        waited(lambda: all(self._acknowledged.values()), "the first records")

    def wait(self, killed_s: float) -> list[float]:
        """Return, by partition, the seconds from a given time to the first acknowledgement of a record that was sent after it."""

        def found() -> list[float]:
            with self._lock:
                firsts = [[at for sent, at in some if sent > killed_s] for some in self._acknowledged.values()]
            return [min(some) - killed_s for some in firsts if some]

        waited(lambda: len(found()) == len(self._partitions), "records of all partitions to be acknowledged")
        self._is_over.set()
        self._thread.join()
        return found()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for partition in self._partitions:
                self._send(partition)
            self._producer.poll(0.005)
        self._producer.purge()
        self._producer.flush(1)

    def _send(self, partition: int) -> None:
        sent = time.monotonic()

        def done(error: object, message: Message) -> None:
            if error is None:
                with self._lock:
                    self._acknowledged[partition].append((sent, time.monotonic()))

        with contextlib.suppress(BufferError, KafkaException):
            self._producer.produce(self._topic, b"x", partition=partition, on_delivery=done)


class _Prober:
    """A client of another broker: a small record every few milliseconds, in a separate process."""

    def __init__(self, node: Node, topic: str, partition: int) -> None:
        request = frame(produce_request(topic, batch(1, 100), partition=partition, acks=1), PRODUCE_VERSION)
        command = [sys.executable, "-m", "bench.broker.prober", str(node.port), request.hex()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"

    def figures(self) -> dict[str, float]:
        """Stop the client, and return its figures."""
        printed, _ = self._process.communicate("\n", timeout=PATIENCE_S)
        return dict(json.loads(printed))
