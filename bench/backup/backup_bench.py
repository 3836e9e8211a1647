"""Backup and restore beside `kafka-backup-core`, in turn, of the same Kafka 3.9.1; and what a backup that follows costs.

    python -m bench.backup.backup_bench [--mb 300] [--runs 3] [--only backup restore idle lag] [--peer PROGRAM]

Both back up into a folder, without compressing again, and restore into new topics of the same broker. Elapsed time and processor
time are those of the whole process, with its start. Needs Java, Maven and, for the peer, cargo (once, some minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.kafka import Kafka391, why_not
from tests.kafka.clients import create_topics, flush
from tests.kafka.tidelog_node import TIDELOG

from bench.charts.figures import Figure, note
from bench.children.scratch import scratch

OUT = scratch("backup")
PEER = Path(__file__).parent / "peer"
TOPIC, PARTITIONS, VALUE_BYTES = "orders", 6, 1000
IDLE_TOPICS, IDLE_PARTITIONS = 100, 10
IDLE_S, LAG_S, LAG_MB = 60, 30, 50


class Run(NamedTuple):
    """Seconds of one process."""

    elapsed: float
    processor: float


def ran(command: list[object], **options: object) -> Run:
    """Run a program. Raises CalledProcessError."""
    began = time.monotonic()
    with (OUT / "output.log").open("a") as log:
        process = subprocess.Popen([str(one) for one in command], stdout=log, stderr=log)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, [str(one) for one in command])
    return Run(time.monotonic() - began, usage.ru_utime + usage.ru_stime)


def fill(bootstrap: str, megabytes: int) -> None:
    create_topics(bootstrap, {TOPIC: {"retention.ms": "-1"}}, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 100_000, "acks": "all", "log_level": 0})
    for number in range(megabytes * 1_000_000 // VALUE_BYTES):
        while True:
            try:
                producer.produce(TOPIC, os.urandom(VALUE_BYTES // 2) * 2, b"%d" % number, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    flush(producer)


def peer_program(given: Path | None) -> Path | None:
    """Return the peer's program, compiled if there is cargo."""
    if given is not None:
        return given
    if shutil.which("cargo") is None:
        print("no cargo: Tidelog alone", file=sys.stderr)
        return None
    target = OUT.parent / "backup-peer"
    subprocess.run(["cargo", "build", "--release", "--target-dir", target, "--manifest-path", PEER / "Cargo.toml"], check=True)
    return target / "release" / "peer"


def peer_config(bootstrap: str, mode: str, folder: Path, target: str = "") -> Path:
    common = {"backup_id": "bench", "storage": {"backend": "filesystem", "path": str(folder)}}
    brokers = {"bootstrap_servers": [bootstrap]}
    if mode == "backup":
        options = {"continuous": False, "stop_at_current_offsets": True, "compression": "none", "consumer_group_snapshot": True}
        content = {"mode": mode, "source": {**brokers, "topics": {"include": [TOPIC]}}, "backup": options, **common}
    else:
        options = {"create_topics": True, "topic_mapping": {TOPIC: target}, "include_original_offset_header": False}
        content = {"mode": mode, "target": {**brokers, "topics": {"include": [TOPIC]}}, "restore": options, **common}
    path = OUT / f"{mode}.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML.
    return path


def compared(name: str, runs: int, sides: dict[str, Callable[[int], Run]], megabytes: int) -> Iterator[dict[str, object]]:
    """Run both in turn, once without counting; yield the medians."""
    found: dict[str, list[Run]] = {side: [] for side in sides}
    for number in range(runs + 1):
        for side, work in sides.items():
            one = work(number)
            if number:
                found[side].append(one)
    medians = {
        side: Run(statistics.median(one.elapsed for one in results), statistics.median(one.processor for one in results))
        for side, results in found.items()
    }
    for side, one in medians.items():
        elapsed, processor = round(one.elapsed, 2), round(one.processor, 2)
        yield {"case": name, "side": side, "mb": megabytes, "elapsed_s": elapsed, "processor_s": processor}
    if "peer" in medians:
        theirs, ours = medians["peer"], medians["tidelog"]
        rates = round(megabytes / theirs.elapsed, 1), round(megabytes / ours.elapsed, 1)
        costs = round(1000 * theirs.processor / megabytes, 2), round(1000 * ours.processor / megabytes, 2)
        note("backup", Figure(f"{name}, {megabytes} MB", rates[0], rates[1], "MB/s", target=2, processor=costs))


def transfers(kafka: Kafka391, asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Backup and restore of the same topic."""
    fill(kafka.bootstrap, asked.mb)
    peer = peer_program(asked.peer)

    def empty(side: str, number: int) -> Path:
        shutil.rmtree(OUT / f"{side}-{number - 1}", ignore_errors=True)
        return OUT / f"{side}-{number}"

    backups: dict[str, Callable[[int], Run]] = {
        "tidelog": lambda number: ran([TIDELOG, "backup", kafka.bootstrap, empty("tidelog", number), "--topics", TOPIC])
    }

    def restored(number: int) -> Run:
        where = ["--to", kafka.bootstrap, "--rename", f"{TOPIC}=tidelog-{number}", "--work", OUT / f"work-{number}"]
        one = ran([TIDELOG, "restore", OUT / f"tidelog-{asked.runs}", *where, "--no-groups", "--no-verify"])
        forget(kafka, f"tidelog-{number}")
        return one

    restores: dict[str, Callable[[int], Run]] = {"tidelog": restored}

    def restored_by_peer(number: int) -> Run:
        config = peer_config(kafka.bootstrap, "restore", OUT / f"peer-{asked.runs}", f"peer-{number}")
        one = ran([str(peer), "restore", config])
        forget(kafka, f"peer-{number}")
        return one

    if peer is not None:
        backups["peer"] = lambda number: ran([peer, "backup", peer_config(kafka.bootstrap, "backup", empty("peer", number))])
        restores["peer"] = restored_by_peer
    yield from compared("backup", asked.runs, backups, asked.mb)
    if "restore" in asked.only:
        yield from compared("restore", asked.runs, restores, asked.mb)


def forget(kafka: Kafka391, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})  # It must outlive its request.
    (done,) = admin.delete_topics([topic]).values()
    done.result()


def following(kafka: Kafka391, every: str, seconds: float, load: Callable[[float], None]) -> tuple[list[dict[str, int]], float]:
    """Let a backup follow while `load` works; return its points, and its processor time in that time."""
    folder = OUT / f"following-{time.monotonic_ns()}"
    command = [TIDELOG, "backup", kafka.bootstrap, str(folder), "--follow", "--every", every, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        json.loads(process.stdout.readline())  # The first point reads everything.
        before = processor_s(process.pid)
        load(seconds)
        used = processor_s(process.pid) - before
        process.terminate()
        points = [json.loads(line) for line in process.stdout if line.startswith("{")]
    shutil.rmtree(folder)
    return points, used


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(kafka: Kafka391) -> Iterator[dict[str, object]]:
    create_topics(kafka.bootstrap, {f"idle-{number}": {} for number in range(IDLE_TOPICS)}, IDLE_PARTITIONS)
    points, used = following(kafka, "5s", IDLE_S, time.sleep)
    part = round(100 * used / IDLE_S, 2)
    yield {"case": "idle", "partitions": IDLE_TOPICS * IDLE_PARTITIONS, "points": len(points), "percent_of_a_core": part}


def lag(kafka: Kafka391) -> Iterator[dict[str, object]]:
    """The age of the cut when its point is finished, plus the time from point to point: no record waits longer."""
    create_topics(kafka.bootstrap, {"busy": {}}, PARTITIONS)
    sent = 0

    def load(seconds: float) -> None:
        nonlocal sent
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "batch.size": 200_000, "log_level": 0})
        value, began = os.urandom(10_000), time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            while sent * len(value) < passed * LAG_MB * 1_000_000:
                try:
                    producer.produce("busy", value, partition=sent % PARTITIONS)
                    sent += 1
                except BufferError:
                    break
            producer.poll(0.005)
        flush(producer)

    points, used = following(kafka, "1s", LAG_S, load)
    ends = [(after["finished_ms"] - before["taken_ms"]) / 1000 for before, after in pairwise(points)]
    rate = round(sent * 10_000 / 1_000_000 / LAG_S, 1)
    worst, usual = round(max(ends), 2), round(statistics.median(ends), 2)
    yield {
        "case": "lag",
        "mb_per_s": rate,
        "points": len(points),
        "worst_s": worst,
        "median_s": usual,
        "processor_s": round(used, 1),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["backup", "restore", "idle", "lag"])
    parser.add_argument("--peer", type=Path, default=None, help="the compiled program [default: compile it]")
    asked = parser.parse_args(arguments)
    reason = why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        for name, part in (("backup", lambda kafka: transfers(kafka, asked)), ("idle", idle), ("lag", lag)):
            if name in asked.only:
                with Kafka391(OUT / f"kafka-{name}") as kafka:
                    for one in part(kafka):
                        print(json.dumps(one), flush=True)
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
