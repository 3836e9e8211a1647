"""Make golden data again: `python -m tests.kafka.generate_golden RELEASE OUT [--only NAME ...] [--seed N]`.

RELEASE is 3.9.1 or 2.4.1. A broker of that release is started, its topics are filled (`golden_topics`), its answers are
recorded in OUT/expected.json, some partition folders are copied while it runs (OUT/live), and after a clean stop its data
folder becomes OUT/log. With --only, just those topics are made and put into an OUT that is there already: their folders,
their answers, their checkpoint lines.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import Row, consume, offset_for_time, offset_of_max_timestamp, watermarks
from tests.kafka.golden_topics import Filler, plans, segment_logs

# The cleaner and the deletion of files have nothing to wait for.
BROKER = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "2147483647",
}
LIVE = {"3.9.1": ("v2-lz4-ct", "transactions", "future-pinned"), "2.4.1": ("v1-gzip-ct", "v0-none-ct")}
CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Make golden data again, through a real Kafka broker.")
    parser.add_argument("release", choices=("3.9.1", "2.4.1"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these topics, into an OUT that is there already")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    generate(arguments.release, arguments.out, only=arguments.only, seed=arguments.seed)


def generate(release: str, out: Path, *, only: list[str] | None, seed: int) -> None:
    """Fill a broker's topics, record its answers, keep its folders."""
    chosen = {name: plan for name, plan in plans(release).items() if only is None or name in only}
    if only is not None and set(only) - set(chosen):
        raise SystemExit(f"Kafka {release} has no golden topic {', '.join(sorted(set(only) - set(chosen)))}")
    with tempfile.TemporaryDirectory(prefix="tidelog-golden-") as folder:
        kafka = (Kafka391 if release == "3.9.1" else Kafka241)(Path(folder), BROKER)
        with kafka as broker:
            filler = Filler(broker, seed)
            topics: dict[str, list[dict[str, Any]]] = {}
            for name, plan in chosen.items():
                began = time.monotonic()
                plan(filler, name)
                topics[name] = [record(filler, name, partition) for partition in range(broker.topics[name])]
                print(
                    f"{name}: {[len(found['records']) for found in topics[name]]} records, {time.monotonic() - began:.1f} s",
                    flush=True,
                )
            for name in LIVE[release]:
                if name in chosen:
                    shutil.copytree(broker.partition_folder(name), out / "live" / f"{name}-0", dirs_exist_ok=True)
        expected = {"seed": seed, "kafka": release, "topics": topics}
        if only is None:
            shutil.copytree(kafka.data, out / "log", ignore=shutil.ignore_patterns(".lock", "__cluster_metadata-*"))
        else:
            expected = json.loads((out / "expected.json").read_text())
            expected["topics"] |= topics
            for name in chosen:
                for partition in range(len(topics[name])):
                    target = out / "log" / f"{name}-{partition}"
                    shutil.rmtree(target, ignore_errors=True)
                    shutil.copytree(kafka.partition_folder(name, partition), target)
            for checkpoint in CHECKPOINTS:
                merge_checkpoint(kafka.data / checkpoint, out / "log" / checkpoint, set(chosen))
    (out / "expected.json").write_text(json.dumps(expected))


def record(filler: Filler, topic: str, partition: int) -> dict[str, Any]:
    """Return what the broker answers about a partition; the fields are those of README.md."""
    broker = filler.broker
    low, high = watermarks(broker.bootstrap, topic, partition)
    rows = consume(broker.bootstrap, topic, partition)
    committed = [row.offset for row in consume(broker.bootstrap, topic, partition, isolation="read_committed")]
    mtimes = {log.stem.lstrip("0") or "0": log.stat().st_mtime_ns // 1_000_000 for log in segment_logs(broker, topic, partition)}
    dated = topic.startswith("raised-")
    answers: list[list[Any]] = []
    for target in targets(filler, rows, list(mtimes.values()) if dated else []):
        answer = offset_for_time(broker.admin, topic, partition, target)
        if isinstance(answer, int):
            answers.append([target, "error", answer])
            break
        answers.append([target, *answer])
    largest = None
    if isinstance(broker, Kafka391):
        found = offset_of_max_timestamp(broker.admin, topic, partition)
        largest = list(found) if isinstance(found, tuple) else found
    result: dict[str, Any] = {
        "partition": partition,
        "log_start": low,
        "high_watermark": high,
        "records": [as_json(row) for row in rows],
        "read_committed_offsets": None if len(committed) == len(rows) else committed,
        "list_offsets": answers,
        "max_timestamp": largest,
    }
    if dated:
        result["segment_mtimes_ms"] = mtimes
    return result


def targets(filler: Filler, rows: list[Row], mtimes_ms: list[int]) -> list[int]:
    """Return times to ask for: around forty of the timestamps, around the ends, around file times where those matter."""
    known = sorted({row.timestamp for row in rows if row.timestamp >= 0})
    if not known:
        return sorted({0, filler.begin_ms, *mtimes_ms})
    chance = random.Random(filler.seed)
    near = [*chance.sample(known, min(40, len(known))), known[0], known[-1], known[len(known) // 2], *mtimes_ms]
    return sorted({0} | {time_ms + delta for time_ms in near for delta in (-1, 0, 1) if time_ms + delta >= 0})


def as_json(row: Row) -> list[Any]:
    """Return a record as expected.json holds it."""
    headers = [[name, as_base64(value)] for name, value in row.headers]
    return [row.offset, row.timestamp, row.timestamp_type, as_base64(row.key), as_base64(row.value), headers]


def as_base64(value: bytes | None) -> str | None:
    """Return bytes as base64 text, None as None."""
    return None if value is None else base64.b64encode(value).decode()


def merge_checkpoint(source: Path, target: Path, topics: set[str]) -> None:
    """Put the lines of `topics` from one offset checkpoint (version, count, `topic partition offset` ...) into another."""
    kept = [line for line in target.read_text().splitlines()[2:] if line.split(" ")[0] not in topics]
    kept += [line for line in source.read_text().splitlines()[2:] if line.split(" ")[0] in topics]
    target.write_text("".join(f"{line}\n" for line in ["0", str(len(kept)), *kept]))


if __name__ == "__main__":
    main()
