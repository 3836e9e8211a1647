"""`make cluster`: shows what clients notice when a broker of a cluster is killed under load.

On 127.0.0.1 three controllers of Apache Kafka 3.9.1 start (by Maven, as in the tests), and three brokers: Tidelog's, Kafka's or
both. A producer sends at a steady rate and waits for all replicas. One broker is killed, as if by a power cut, and started again;
the demo waits until all replicas are in sync. Then every acknowledged record is read back at its acknowledged offset, and
`tidelog verify --replicas` compares the folders. Everything is written to demo/out/cluster.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
OUT = HERE / "out" / "cluster"

from tests.kafka.clusters import KafkaCluster  # noqa: E402
from tests.kafka.jars import why_not  # noqa: E402
from tests.kafka.tidelog_node import TIDELOG  # noqa: E402

from demo.cluster_load import Load, Second, Watch, read_back  # noqa: E402
from demo.cluster_nodes import Node, brokers  # noqa: E402

KINDS = {
    "tidelog": ["tidelog"] * 3,
    "kafka": ["kafka"] * 3,
    "mixed": ["tidelog", "kafka", "tidelog"],
}
VICTIM = 1
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "5000",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", choices=KINDS, default="tidelog", help="which brokers to run [default: tidelog]")
    parser.add_argument("--per-second", type=int, default=2000, metavar="N", help="records sent per second [default: 2000]")
    parser.add_argument("--before", type=int, default=5, metavar="S", help="seconds before the kill [default: 5]")
    parser.add_argument("--down", type=int, default=8, metavar="S", help="seconds until the restart [default: 8]")
    parser.add_argument("--after", type=int, default=5, metavar="S", help="seconds after all are in sync again [default: 5]")
    parser.add_argument("--not-idempotent", action="store_true", help="use a producer that may write duplicates")
    asked = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(reason)
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    kinds = KINDS[asked.brokers]
    with ExitStack() as stack:
        with timed("three controllers of Apache Kafka 3.9.1"):
            cluster = stack.enter_context(KafkaCluster(OUT, controllers=3, properties=PROPERTIES))
        with timed(f"three brokers: {', '.join(f'{n} {kind}' for n, kind in enumerate(kinds, 1))}"):
            nodes = stack.enter_context(brokers(cluster, kinds))
        return story(nodes, kinds, asked)


def story(nodes: dict[int, Node], kinds: list[str], asked: argparse.Namespace) -> int:
    bootstrap = ",".join(node.bootstrap for node in nodes.values())
    watch = Watch(bootstrap)
    with timed("topic orders: 6 partitions, 3 replicas, min.insync.replicas=2"):
        watch.create(len(nodes))
    load = Load(bootstrap, asked.per_second, is_idempotent=not asked.not_idempotent)
    print(f"\n{asked.per_second} records per second, acks=all\n")
    print("second  acknowledged  longest wait  leaders (broker:partitions)  fewest in sync")
    load.start()
    seen = list(_seconds(asked.before, load, watch))
    print(f"------  kill -9 broker {VICTIM} ({kinds[VICTIM - 1]})")
    nodes[VICTIM].kill()
    during = list(_seconds(asked.down, load, watch, len(seen)))
    print(f"------  broker {VICTIM} starts again")
    nodes[VICTIM].start(waits=False)
    back: list[Second] = []
    began = time.monotonic()
    while not back or watch.fewest_in_sync() < len(nodes):
        back += _seconds(1, load, watch, len(seen) + len(during) + len(back))
        if time.monotonic() - began > 120:
            raise TimeoutError("two minutes, and the broker is not in sync again")
    in_sync_s = time.monotonic() - began
    print("------  all replicas are in sync")
    after = list(_seconds(asked.after, load, watch, len(seen) + len(during) + len(back)))
    load.stop()
    found = read_back(bootstrap)
    wrong = [place for place, value in load.acknowledged.items() if found.get(place) != value]
    twice = len(found) - len(set(found.values()))
    watch.wait_in_sync(len(nodes))
    for node in nodes.values():
        node.stop()
    command = ["verify", "--replicas", *(str(node.data.relative_to(OUT)) for node in nodes.values()), "--topic", "orders"]
    print(
        f"\n$ cd {OUT.relative_to(Path.cwd()) if OUT.is_relative_to(Path.cwd()) else OUT}; tidelog {' '.join(command)}",
        flush=True,
    )
    verified = subprocess.run([TIDELOG, *command], cwd=OUT, check=False)
    every = seen + during + back + after
    rows = [
        ("sent, acknowledged, failed", f"{load.sent}, {len(load.acknowledged)}, {load.failed}"),
        ("acknowledged, but not at their offset", str(len(wrong))),
        ("duplicates", str(twice)),
        ("longest wait before and after the kill", f"{_longest(seen):.2f} s, {_longest(during + back):.2f} s"),
        ("seconds without an acknowledgement", str(sum(one.acknowledged == 0 for one in every))),
        ("from the restart to all in sync", f"{in_sync_s:.1f} s"),
        ("replicas", "identical" if verified.returncode == 0 else "DIFFER"),
    ]
    print()
    for name, value in rows:
        print(f"  {name:<42} {value}")
    return 0 if not (wrong or (twice and not asked.not_idempotent) or load.failed or verified.returncode) else 1


def _seconds(count: int, load: Load, watch: Watch, first: int = 0) -> Iterator[Second]:
    for number in range(first, first + count):
        ends = time.monotonic() + 1
        leaders, in_sync = watch.leaders(), watch.fewest_in_sync()
        time.sleep(max(0.0, ends - time.monotonic()))
        one = load.second()
        led = " ".join(f"{'none' if node < 0 else node}:{count}" for node, count in sorted(leaders.items()))
        print(f"{number:>6}  {one.acknowledged:>12}  {one.longest_wait_s:>10.2f} s  {led or '-':<27}  {in_sync:>14}", flush=True)
        for error, times in one.errors.items():
            print(f"        {times} failed: {error}")
        yield one


def _longest(seconds: list[Second]) -> float:
    return max((one.longest_wait_s for one in seconds), default=0.0)


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"{what} ...", flush=True)
    yield
    print(f"  {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
