"""`make demo-backup`: bad data gets into a topic, and Kafka is back where it was a moment before.

Three brokers of Apache Kafka 3.9.1 start on 127.0.0.1 (by Maven, as in the tests). A producer writes orders with acks=all, the
group billing reads them and commits, and `tidelog backup --follow` takes a point every two seconds; a broker is killed meanwhile.
Then an error creeps in: all prices are negative. The cluster is lost, `tidelog restore --until` writes a folder as of the moment
before, and Kafka starts on it. Every good order must be there, no bad one, and the group at its last commit. Everything is
written to demo/out/backup, with a picture.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl
from confluent_kafka import Consumer, Producer, TopicPartition

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
OUT = HERE / "out" / "backup"

mpl.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from tests.kafka import Kafka391, why_not  # noqa: E402
from tests.kafka.clients import consume, create_topics  # noqa: E402
from tests.kafka.clusters import KafkaCluster  # noqa: E402
from tests.kafka.tidelog_node import TIDELOG  # noqa: E402

TOPIC, GROUP, PARTITIONS, BROKERS = "orders", "billing", 3, 3
PER_SECOND = 300
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
}
GOOD_S, BAD_S = 12, 6
GIVE_UP_S = 60
INK, WATER, BAD, POINT = "#1f2d3d", "#2a7fb8", "#d1495b", "#b8c4ce"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Shop:
    """Sends orders and reads them as `GROUP`, on two threads, until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self.is_bad = False
        self.sent: list[tuple[int, bytes]] = []
        """Time and value of each order."""
        self.commits: list[tuple[int, dict[int, int]]] = []
        """When the group had committed which positions."""
        self._bootstrap = bootstrap
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._bill)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0})
        began = time.monotonic()
        while not self._stopped.is_set():
            while len(self.sent) < (time.monotonic() - began) * PER_SECOND:
                number = len(self.sent)
                value = json.dumps({"order": number, "price": -1 if self.is_bad else 1 + number % 90}).encode()
                time_ms = now_ms()  # After the price is known, so that no bad order has a time before the first one.
                producer.produce(TOPIC, value, b"customer %d" % (number % 50), number % PARTITIONS, timestamp=time_ms)
                self.sent.append((time_ms, value))
            producer.poll(0.01)
        if producer.flush(GIVE_UP_S):
            raise TimeoutError("the brokers do not take the orders")

    def _bill(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        while not self._stopped.is_set():
            if any(message.error() is None for message in consumer.consume(200, timeout=0.5)):
                done = consumer.commit(asynchronous=False) or []
                self.commits.append((now_ms(), {one.partition: one.offset for one in done if one.offset >= 0}))
        consumer.close()


def main() -> int:
    reason = why_not()
    if reason is not None:
        print(reason)
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    backup, folder = OUT / "backup", OUT / "after" / "data"
    with KafkaCluster(OUT / "before", properties=REPLICATED) as kafka:
        for number in range(1, BROKERS + 1):
            kafka.broker(number)
        create_topics(kafka.bootstrap, {TOPIC: {"min.insync.replicas": "2"}}, PARTITIONS, BROKERS)
        print(f"{PER_SECOND} orders a second; the group {GROUP} reads them; $ tidelog backup {kafka.bootstrap} backup --follow")
        shop = Shop(kafka.bootstrap)
        command = [TIDELOG, "backup", kafka.bootstrap, backup, "--internal", "--follow", "--every", "2s"]
        with (OUT / "backup.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as follower:
            time.sleep(GOOD_S / 2)
            print(f"{clock(now_ms())}  broker 2 is killed; the others go on")
            kafka.brokers[2].kill()
            time.sleep(GOOD_S / 2)
            until_ms = now_ms()
            time.sleep(0.05)  # So that the first bad order is later, whatever the clock's step.
            shop.is_bad = True
            print(f"{clock(until_ms)}  all is well for the last time: from here on the prices are wrong")
            time.sleep(BAD_S)
            shop.stop()
            stopped_ms = now_ms()
            wait_until(lambda: any(at > stopped_ms for at in points(backup)), "point of the backup")
            follower.terminate()  # A process in the background may ignore an interrupt.
        taken = points(backup)
    print(f"{clock(now_ms())}  the cluster is lost; the backup has {len(taken)} points")
    began = time.monotonic()
    restore = [TIDELOG, "restore", backup, "--to", folder, "--until", str(until_ms)]
    print(f"\n$ tidelog restore backup --to after/data --until {clock(until_ms)}", flush=True)
    subprocess.run(restore, check=True)
    restored_s = time.monotonic() - began
    with Kafka391(OUT / "after", {"metadata.log.dir": str(folder)}) as kafka:
        found = [row.value for number in range(PARTITIONS) for row in consume(kafka.bootstrap, TOPIC, number)]
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": GROUP, "log_level": 0})
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        position = {one.partition: one.offset for one in reader.committed(places, timeout=GIVE_UP_S)}
        reader.close()
    good = [value for time_ms, value in shop.sent if time_ms < until_ms]
    allowed = [offsets for at, offsets in shop.commits if at < until_ms][-1:] + [
        offsets for at, offsets in shop.commits if until_ms <= at
    ][:1]  # A commit was stored a little before the client heard of it.
    is_group_right = all(position[number] in {one.get(number) for one in allowed} for number in range(PARTITIONS))
    is_whole = sorted(found) == sorted(good)
    print()
    for name, text in (
        ("orders sent, of which bad", f"{len(shop.sent)}, {len(shop.sent) - len(good)}"),
        ("orders after the restore, of which bad", f"{len(found)}, {len(set(found) - set(good))}"),
        ("every good order, once", "yes" if is_whole else "NO"),
        (f"the group {GROUP} is where it was", f"{position}" if is_group_right else f"NO: {position}, not {allowed}"),
        ("the restore took", f"{restored_s:.1f} s"),
    ):
        print(f"  {name:<42} {text}")
    draw(shop, until_ms, taken, len(found), sum(position.values()), OUT / "backup.png")
    print(f"  picture                                    {OUT / 'backup.png'}")
    return 0 if is_whole and is_group_right else 1


def points(backup: Path) -> list[int]:
    """Return the times of the backup's points."""
    listed = subprocess.run([TIDELOG, "backup", "list", backup, "--json"], capture_output=True, text=True, check=False)
    return [one["taken_ms"] for one in map(json.loads, listed.stdout.splitlines()) if "taken_ms" in one]


def draw(shop: Shop, until_ms: int, taken: list[int], found: int, position: int, output: Path) -> None:
    """Draw the orders and the group's position over time, before and after."""
    start_ms = shop.sent[0][0]
    times = [(time_ms - start_ms) / 1000 for time_ms, _ in shop.sent]
    cut = sum(time_ms < until_ms for time_ms, _ in shop.sent)
    known: dict[int, int] = {}
    steps = []
    for at, offsets in shop.commits:
        known |= offsets
        steps.append(((at - start_ms) / 1000, sum(known.values())))
    figure, axes = plt.subplots(figsize=(10, 5))
    axes.plot(times[: cut + 1], range(cut + 1), color=WATER, lw=2, label="good orders")
    axes.plot(times[cut:], range(cut, len(times)), color=BAD, lw=2, label="bad orders")
    axes.step(*zip(*steps, strict=True), where="post", color=INK, lw=1, label=f"position of the group {GROUP}")
    for number, at in enumerate(taken):
        axes.axvline((at - start_ms) / 1000, color=POINT, lw=0.8, ls=":", label="point of the backup" if number == 0 else None)
    until = (until_ms - start_ms) / 1000
    axes.axvline(until, color=BAD, lw=1, ls="--")
    axes.plot(until, found, "o", color=WATER, ms=9, label=f"restored: {found:,} orders")
    axes.plot(until, position, "s", color=INK, ms=7, label=f"restored: the group at {position:,}")
    axes.set_xlabel("seconds")
    axes.set_ylabel("orders")
    axes.set_title(f"tidelog restore --until {clock(until_ms)}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(output, dpi=120)


def clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + GIVE_UP_S
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError(f"{GIVE_UP_S} s, and no {what}")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
