"""A clean start with thousands of partitions: Tidelog's `LogManager` against Kafka 3.9.1, on the same folder, in turn.

Kafka creates the topics and stops; then the contents of each partition are replaced by three segments as a clean stop leaves
them, and the recovery points by the log ends. Measured for each:

| | Tidelog | Kafka |
|---|---|---|
| load | `LogManager.startup()`, in a separate process | "Loaded 3500 logs in N ms" in its log |
| start | from the process's start to the end of the load | from the process's start to that line |
| memory | resident, after the load | resident, once the broker serves |
| descriptors, maps | of the data folder's files, per segment, after the load | the same |
| ... after a look-up | the same after a search by time through every segment of every partition | the same |

The page cache is warm for both, from the previous round. KIP-33 expected the time index to cost a third more file handles:
the last two columns count all of a segment's files, and all but its time index.

    python -m bench.open_bench [--partitions 3500] [--runs 3] [--segment-kb 64] [--max-ratio 0.25] [--core] [--json]

`--partitions 200 --runs 1` is a quick trial. Needs Java and Maven (without: `--core`, Tidelog alone). Its files are in bench/out
and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.kafka.brokers import Kafka391
from tests.kafka.jars import why_not

from bench.children.open_child import FAR_FUTURE_MS, memory_mb, open_files, process_start_s
from bench.children.scratch import scratch
from bench.recovery_bench import HEAP_MB, JAVA_OPTIONS, LOADED, LOG4J
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats import names
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.loading.loader import load
from tidelog.storage.scheduler import Scheduler

OUT = scratch("open")
SEGMENTS = 3
PARTITIONS_A_TOPIC = 100
FIRST_MS = 1_700_000_000_000
BATCH_RECORDS = 10
VALUE_BYTES = 100
PATIENCE_S = 180


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="a clean start with many partitions, against Kafka 3.9.1")
    parser.add_argument("--partitions", type=int, default=3500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--segment-kb", type=int, default=64)
    parser.add_argument("--max-ratio", type=float, default=0.25, help="end with 1 above this ratio of time or memory")
    parser.add_argument("--core", action="store_true", help="Tidelog alone")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    reason = None if options.core else why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    result = run(options.partitions, options.runs, options.segment_kb, with_kafka=not options.core)
    print(json.dumps(result) if options.json else table(result))
    ratios = result.get("ratios", {})
    return 0 if all(ratio <= options.max_ratio for ratio in ratios.values()) else 1


def run(partitions: int, runs: int, segment_kb: int, *, with_kafka: bool) -> dict[str, Any]:
    """Start Tidelog and Kafka in turn; return the medians of each, and their ratios."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # Kafka holds a descriptor for each segment.
        broker = _broker()
        topics = _topics(partitions)
        if with_kafka:
            _create_by_kafka(broker, topics)
        end_offset = _fill(broker.data, topics, segment_kb * 1024)
        ours: list[dict[str, Any]] = []
        kafkas: list[dict[str, Any]] = []
        for turn in range(runs + 1):
            mine = _tidelog(broker.data)
            his = _kafka(broker, topics, end_offset) if with_kafka else None
            if turn:  # The first round warms the page cache for both.
                ours.append(mine)
                kafkas += [] if his is None else [his]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    finally:
        shutil.rmtree(OUT, ignore_errors=True)
    result: dict[str, Any] = {"partitions": partitions, "segments": partitions * SEGMENTS, "tidelog": _medians(ours)}
    if kafkas:
        kafka = result["kafka"] = _medians(kafkas)
        result["ratios"] = {key: result["tidelog"][key] / kafka[key] for key in ("load_s", "start_s", "memory_mb")}
    return result


def _medians(turns: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {key: statistics.median(turn[key] for turn in turns) for key in ("load_s", "start_s", "memory_mb")}
    return {**numbers, "after_load": turns[-1]["after_load"], "after_look_up": turns[-1]["after_look_up"]}


# --- the folder


def _broker() -> Kafka391:
    log4j = OUT / "log4j.properties"
    log4j.write_text(LOG4J)
    options = (*JAVA_OPTIONS, f"-Dlog4j.configuration={log4j.as_uri()}")
    return Kafka391(OUT / "kafka", heap_mb=HEAP_MB, java_options=options)


def _topics(partitions: int) -> dict[str, int]:
    """Return topic names and partition counts: a hundred partitions per topic, fewer in the last."""
    whole, rest = divmod(partitions, PARTITIONS_A_TOPIC)
    counts = [PARTITIONS_A_TOPIC] * whole + ([rest] if rest else [])
    return {f"bench-{number}": count for number, count in enumerate(counts)}


def _create_by_kafka(broker: Kafka391, topics: dict[str, int]) -> None:
    """Put the topics and their ids into Kafka's metadata, because Kafka treats partition folders of unknown topics as strays."""
    broker.start()
    for name, count in topics.items():
        broker.create_topic(name, count, {"retention.ms": "-1"})
    broker.stop()


def _fill(data: Path, topics: dict[str, int], segment_bytes: int) -> int:
    """Give each partition the same three segments, closed cleanly; return their end offset."""
    template = OUT / "template-0"
    template.mkdir()
    chance = random.Random(1)
    config = LogConfig(segment_bytes=segment_bytes, segment_ms=2**62)
    clock = ManualClock(FIRST_MS)
    log = load(template, config, clock, Scheduler(clock), had_clean_shutdown=True)
    while len(log.segments) < SEGMENTS or log.segments.active.size_bytes < segment_bytes // 2:
        offset = log.log_end_offset
        records = [
            Record(one, FIRST_MS + 10 * one, 0, None, chance.randbytes(VALUE_BYTES))
            for one in range(offset, offset + BATCH_RECORDS)
        ]
        log.append_as_follower(build_batch_v2(records, leader_epoch=0))
    log.close()
    keys = [names.TopicPartition(name, partition) for name, count in topics.items() for partition in range(count)]
    for key in keys:
        folder = data / names.log_dir_name(*key)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if path.name != names.PARTITION_METADATA:
                path.unlink()
        for path in template.iterdir():
            shutil.copyfile(path, folder / path.name)
    ends = dict.fromkeys(keys, log.log_end_offset)
    write_offset_checkpoint(data / names.RECOVERY_POINT_CHECKPOINT, ends)
    write_offset_checkpoint(data / names.HIGH_WATERMARK_CHECKPOINT, ends)
    (data / ".kafka_cleanshutdown").touch()
    return log.log_end_offset


# --- Tidelog


def _tidelog(data: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.children.open_child", str(data)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    return json.loads(done.stdout)


# --- Kafka


def _kafka(broker: Kafka391, topics: dict[str, int], end_offset: int) -> dict[str, Any]:
    output = broker.folder / "broker.out"
    output.unlink(missing_ok=True)
    broker.start()
    assert broker.process is not None
    pid = broker.process.pid
    started = process_start_s(pid)
    line = _loaded_line(output)
    total = sum(topics.values())
    if int(line["logs"]) < total:
        raise RuntimeError(f"Kafka loaded {line['logs']} logs of {total}")
    found = {
        "load_s": int(line["ms"]) / 1000,
        "start_s": _monotonic_of(line["at"]) - started,
        "memory_mb": memory_mb(pid),
        "after_load": open_files(pid, broker.data),
    }
    _look_up(broker, topics, end_offset)
    found["after_look_up"] = open_files(pid, broker.data)
    broker.stop()
    return found


def _look_up(broker: Kafka391, topics: dict[str, int], end_offset: int) -> None:
    """Look up a time after all records in each partition, so that every segment's largest timestamp is read."""
    keys = [TopicPartition(name, one, FAR_FUTURE_MS) for name, count in topics.items() for one in range(count)]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench", "log_level": 0})
    give_up = time.monotonic() + PATIENCE_S
    try:
        while keys:
            if time.monotonic() > give_up:
                raise RuntimeError(f"{len(keys)} partitions without an answer, like {keys[0]}")
            try:
                answers = consumer.offsets_for_times(keys, timeout=PATIENCE_S)
            except KafkaException:
                answers = []
            # Soon after the start, leaders are known but not all of them lead yet: retry the partitions that did not answer.
            answered = {(one.topic, one.partition): one.offset for one in answers if one.error is None}
            if set(answered.values()) - {-1, end_offset}:
                raise RuntimeError(f"answers to a look-up: {set(answered.values())}")
            keys = [key for key in keys if (key.topic, key.partition) not in answered]
            if keys:
                time.sleep(1)
    finally:
        consumer.close()


def _loaded_line(output: Path) -> dict[str, str]:
    """Return when Kafka had loaded its logs, their number, and the milliseconds that it took."""
    for line in output.read_text(errors="replace").splitlines():
        match = LOADED.search(line)
        if match:
            return {"at": line[:23], "logs": match[1], "ms": match[2]}
    raise RuntimeError("Kafka's log does not say how long it took")


def _monotonic_of(timestamp: str) -> float:
    """Convert a log4j time (local, in milliseconds) to `time.monotonic`."""
    text, _, milliseconds = timestamp.partition(",")
    wall = time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")) + int(milliseconds) / 1000
    return wall - time.time() + time.monotonic()


# --- the table


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['partitions']} partitions, {result['segments']} segments",
        "",
        f"{'':10}{'load s':>10}{'start s':>10}{'memory MB':>12}",
    ]
    lines += [
        f"{name:10}{result[name]['load_s']:>10.2f}{result[name]['start_s']:>10.2f}{result[name]['memory_mb']:>12.0f}"
        for name in ("tidelog", "kafka")
        if name in result
    ]
    if "ratios" in result:
        ratios = result["ratios"]
        lines.append(f"{'ratio':10}{ratios['load_s']:>10.2f}{ratios['start_s']:>10.2f}{ratios['memory_mb']:>12.2f}")
    lines += ["", f"{'a segment':34}{'descriptors':>13}{'maps':>8}{'both':>8}{'without time index':>20}"]
    for name in ("tidelog", "kafka"):
        for when in ("after_load", "after_look_up"):
            if name in result:
                lines.append(_per_segment(f"{name}, {when.replace('_', ' ')}", result[name][when], result["segments"]))
    return "\n".join(lines)


def _per_segment(what: str, counts: dict[str, dict[str, int]], segments: int) -> str:
    descriptors = sum(count["descriptors"] for count in counts.values()) / segments
    maps = sum(count["maps"] for count in counts.values()) / segments
    time_index = sum(counts[names.TIME_INDEX_SUFFIX].values()) / segments
    both = descriptors + maps
    return f"{what:34}{descriptors:>13.2f}{maps:>8.2f}{both:>8.2f}{both - time_index:>20.2f}"


if __name__ == "__main__":
    sys.exit(main())
