"""A large consumer group of the new protocol (KIP-848) compared with Apache Kafka 4.2: one run, one broker after the other.

    python -m bench.broker.consumer_group_bench [--members 1000] [--partitions 5000] [--runs 1]

| line | what is measured |
|---|---|
| stable | from the first member's join until each member has its part and the group is stable |
| longest wait | of another group's commits meanwhile, one after the other from another process, in the same internal topic |
| heartbeats | of the stable group, per second |
| processor | the broker's time for one of them |

Until the group is stable, one process sends a heartbeat of each member, then reads all answers, and so on. Clients by default
send one heartbeat in five seconds. Needs Java, Maven and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.broker.raw import RawClient
from tests.interop.peers import served
from tests.kafka import Kafka420
from tests.kafka.clients import create_topics
from tests.kafka.jars import why_not
from tests.kafka.java import wait_until

from bench.broker.clients import raw
from bench.broker.requests import frame
from bench.charts.figures import Figure, note
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

CONNECTIONS = 25
BEATING = 300
"""How many members send heartbeats to the stable group, each on its own connection and as fast as they are answered."""
WAIT_S = 300.0
STEADY_S = 5.0
PROPERTIES = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}

Address = tuple[str, int]


def member_id(number: int) -> str:
    return f"member-{number:05}"


class Members:
    """Members of a group, on a few connections."""

    def __init__(self, address: Address, group: str, topic: str, count: int) -> None:
        self.group = group
        self.topic = topic
        self.clients = [RawClient(address, client_id="bench") for _ in range(CONNECTIONS)]
        self.epochs = [0] * count
        self.owned: list[list[HeartbeatTopicPartitions]] = [[] for _ in range(count)]
        self.reports = [True] * count

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def beat(self) -> None:
        """Send a heartbeat of each member, and take over the answers."""
        for number, epoch in enumerate(self.epochs):
            request = ConsumerGroupHeartbeatRequest(self.group, member_id(number), epoch)
            if self.reports[number]:
                request.rebalance_timeout_ms = 300_000
                request.subscribed_topic_names = [self.topic]
                request.topic_partitions = self.owned[number]
            self.clients[number % CONNECTIONS].send(request, 1)
        for number in range(len(self.epochs)):
            answer = self.clients[number % CONNECTIONS].receive()
            if answer.error_code:
                raise RuntimeError(f"member {number}: {ErrorCode(answer.error_code).name} {answer.error_message}")
            self.epochs[number] = answer.member_epoch
            self.reports[number] = answer.assignment is not None and answer.assignment.topic_partitions != self.owned[number]
            if answer.assignment is not None:
                self.owned[number] = answer.assignment.topic_partitions

    def has(self) -> int:
        """Return how many partitions they have."""
        return sum(len(one.partitions) for some in self.owned for one in some)

    def is_stable(self, partitions: int) -> bool:
        """Whether everything is assigned, and the broker says so."""
        if self.has() != partitions or any(self.reports):
            return False
        (group,) = self.clients[0].ask(ConsumerGroupDescribeRequest([self.group]), 0).groups
        return bool(group.group_state == "Stable")


def commit_request(topic: str) -> OffsetCommitRequest:
    return OffsetCommitRequest("other", topics=[OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1)])])


def commit_for_ever(address: Address, topic: str) -> None:
    """Commit again and again until the input ends; print the longest wait in ms."""
    longest = 0.0
    with RawClient(address, client_id="other") as client:
        print("ready", flush=True)
        sys.stdin.readline()
        until_end = threading.Thread(target=sys.stdin.read, daemon=True)
        until_end.start()
        while until_end.is_alive():
            began = time.perf_counter()
            client.ask(commit_request(topic), 8)
            longest = max(longest, time.perf_counter() - began)
            time.sleep(0.002)
    print(f"{longest * 1000:.1f}", flush=True)


@contextmanager
def others(address: Address, topic: str) -> Iterator[list[float]]:
    """Have another process commit meanwhile; afterwards the list has its longest wait in ms."""
    command = [
        sys.executable,
        "-m",
        "bench.broker.consumer_group_bench",
        "--commit",
        f"{address[0]}:{address[1]}",
        "--topic",
        topic,
    ]
    waits: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        yield waits
        process.stdin.close()
        waits.append(float(process.stdout.readline()))


def cpu_seconds() -> float:
    """Return the processor time of this process's children that run: of the broker."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def measured(broker: Any, run: int, members: int, partitions: int) -> dict[str, float]:
    """Return the lines of one run on a broker."""
    host, port = broker.bootstrap.rsplit(":", 1)
    address, topic, group = (host, int(port)), f"wide-{run}", f"large-{run}"
    create_topics(broker.bootstrap, {topic: {}}, partitions)
    with RawClient(address) as client:

        def is_there() -> bool:
            client.ask(FindCoordinatorRequest(key=group), 1)
            (found,) = client.ask(MetadataRequest(topics=None), 12).topics[-1:]
            code = client.ask(commit_request(topic), 8).topics[0].partitions[0].error_code
            return not code and found is not None

        wait_until(is_there, "the topic and the coordinator", WAIT_S)
    one = Members(address, group, topic, members)
    with others(address, topic) as waits:
        began = time.perf_counter()
        while not one.is_stable(partitions):
            one.beat()
            if time.perf_counter() - began > WAIT_S:
                raise RuntimeError(f"the group is not stable: it has {one.has()} partitions")
        stable_s = time.perf_counter() - began
    some = range(min(members, BEATING))
    frames = [frame(ConsumerGroupHeartbeatRequest(group, member_id(number), one.epochs[number]), 1) for number in some]
    before = cpu_seconds()
    result = raw(address[1], frames, seconds=STEADY_S)
    cpu_us = (cpu_seconds() - before) / result.requests * 1e6
    one.beat()  # Raises if anything has changed.
    one.close()
    return {"stable": stable_s, "longest wait": waits[0], "heartbeats": result.requests / result.seconds, "processor": cpu_us}


def main() -> int:
    parser = argparse.ArgumentParser(description="a large consumer group of the new protocol beside Apache Kafka 4.2")
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tidelog", action="store_true", help="Tidelog alone: no ratios")
    parser.add_argument("--commit", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.commit:
        host, port = options.commit.rsplit(":", 1)
        commit_for_ever((host, int(port)), options.topic)
        return 0
    reason = why_not()
    if reason and not options.tidelog:
        print(reason, file=sys.stderr)
        return 0
    found: dict[str, list[dict[str, float]]] = {}
    kinds: Mapping[str, Any] = {"tidelog": served} if options.tidelog else {"kafka": Kafka420, "tidelog": served}
    with TemporaryDirectory(prefix="consumer-groups-") as folder:
        for name, serve in kinds.items():
            place = Path(folder, name)
            place.mkdir()
            with serve(place, PROPERTIES) as broker:
                found[name] = [measured(broker, run, options.members, options.partitions) for run in range(options.runs)]
            print(name, found[name], flush=True)
    return report(found, options.members, options.partitions)


def report(found: Mapping[str, list[dict[str, float]]], members: int, partitions: int) -> int:
    """Print each line; return 1 if a target is missed."""
    what = f"{members:,} members, {partitions:,} partitions"
    is_missed = False
    for line, unit, is_more_better, target in (
        ("stable", "s", False, 2.0),
        ("longest wait", "ms", False, None),
        ("heartbeats", "req/s", True, 1.0),
        ("processor", "µs/req", False, None),
    ):
        middle = {name: statistics.median(run[line] for run in runs) for name, runs in found.items()}
        ours, theirs = middle["tidelog"], middle.get("kafka")
        print(f"{line:15} {'' if theirs is None else f'{theirs:10.2f}'} {ours:10.2f} {unit}", flush=True)
        if line == "longest wait":
            is_missed |= ours > 100
        if theirs is not None:
            note("consumer_groups", Figure(f"{what}: {line}", theirs, ours, unit, is_more_better, target, None))
            is_missed |= target is not None and (ours < theirs * target if is_more_better else ours > theirs * target)
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
