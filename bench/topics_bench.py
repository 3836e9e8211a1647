"""Ten thousand topics: the cost of creating the last ones compared with the first ones, and the time of a start with all of them.

    python -m bench.topics_bench [--topics 500] [--runs 1] [--full] [--core] [--json]

Topics of one partition are created on `tidelog serve` with one request each, and on another broker with fifty in each request. On
both, the first and the last twentieth of the topics are compared by elapsed time and by the broker's processor time. Some topics
are created before that, to warm up the broker.

Then both brokers start on that folder: Kafka 3.9.1 in combined mode on a copy of it, where it continues the metadata log that
Tidelog left. A start lasts from the process's start until every topic has a leader and the last one returns its end offset; a
stop lasts until the process has ended. Kafka starts three times: after a clean stop of Tidelog, after a clean stop of Kafka, and
after kill -9. The last start includes the wait for the session of the killed broker, which is set to 2 s here (9 s by default).
The page cache is warm for both.

The full form has 10,000 topics and three runs. Needs Java and Maven (without: `--core`, Tidelog alone).
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.kafka.brokers import Kafka391
from tests.kafka.jars import why_not

from bench.broker.peers import KAFKA_OPTIONS, TidelogProcess
from bench.broker.prober import answer_to
from bench.broker.processor_time import own_seconds
from bench.broker.requests import LIST_OFFSETS_VERSION, frame, list_offsets_request
from bench.children.open_child import process_start_s
from bench.children.scratch import scratch
from tidelog.wire.headers import read_response
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.list_offsets import ListOffsetsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

OUT = scratch("topics")
FULL = 10_000
BATCH = 50
WARM_UP = 50
METADATA_VERSION = CREATE_VERSION = 5
PATIENCE_S = 300
POLL_S = 0.02
MAX_GROWTH = 1.5
MAX_RATIO = 0.25

Figures = dict[str, float]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="creating many topics, and starts with them, against Kafka 3.9.1")
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--runs", type=int, default=1, help="the medians count")
    parser.add_argument("--full", action="store_true", help=f"{FULL} topics, three runs")
    parser.add_argument("--core", action="store_true", help="Tidelog alone")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    if options.full:
        options.topics, options.runs = FULL, 3
    reason = None if options.core else why_not()
    if reason is not None:
        print(f"{reason}: Tidelog alone", file=sys.stderr)
    # Kafka holds a descriptor for each log.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    runs = [run(options.topics, with_kafka=not options.core and reason is None) for _ in range(options.runs)]
    medians = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
    print(json.dumps({"topics": options.topics, **medians}) if options.json else table(options.topics, medians))
    return 1 if missed(medians) else 0


def run(topics: int, *, with_kafka: bool) -> Figures:
    """Create topics in both ways, and start with the last folder."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        found = {}
        for how, a_request in (("fifty a request", BATCH), ("one by one", 1)):
            folder = OUT / how.replace(" ", "-")
            found |= _created(folder, topics, a_request, how)
        copy = OUT / "kafka" / "data"
        if with_kafka:
            shutil.copytree(folder, copy)
        found |= _tidelog(folder, topics)
        if with_kafka:
            found |= _kafka(copy, topics)
        return found
    finally:
        shutil.rmtree(OUT, ignore_errors=True)


# --- creating


def _created(folder: Path, topics: int, a_request: int, how: str) -> Figures:
    """Create all topics; return the cost of the first and the last."""
    process = _serve(folder)
    process.start()
    try:
        _wait(process.port, 0)
        found: Figures = {}
        part = max(topics // 20, a_request)
        with socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE_S) as connection:
            _create(connection, [f"warm-up-{number}" for number in range(WARM_UP)], a_request)
            for which, numbers in (
                ("first", range(part)),
                ("", range(part, topics - part)),
                ("last", range(topics - part, topics)),
            ):
                began, used = time.perf_counter(), own_seconds(process.pid)
                _create(connection, [_name(number) for number in numbers], a_request)
                if which:
                    found[f"{how}, {which}: ms a topic"] = (time.perf_counter() - began) / part * 1000
                    found[f"{how}, {which}: CPU ms a topic"] = (own_seconds(process.pid) - used) / part * 1000
        return found
    finally:
        process.stop()


def _create(connection: socket.socket, names: list[str], a_request: int) -> None:
    for at in range(0, len(names), a_request):
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names[at : at + a_request]]
        request = CreateTopicsRequest(topics=topics, timeout_ms=PATIENCE_S * 1000)
        answer = read_response(
            CreateTopicsResponse, CREATE_VERSION, memoryview(answer_to(connection, frame(request, CREATE_VERSION)))
        )
        refused = {one.error_code for one in answer[1].topics if one.error_code}
        if refused:
            raise RuntimeError(f"topics were refused: {refused}")


def _name(number: int) -> str:
    return f"topic-{number:05}"


# --- starting


def _tidelog(folder: Path, topics: int) -> Figures:
    process = _serve(folder)
    return {
        **_start(process.start, lambda: process.pid, process.port, topics, "Tidelog, clean start"),
        **_stop(process.stop, "Tidelog, stop"),
        **_start(process.start, lambda: process.pid, process.port, topics, "Tidelog, clean start"),  # Warm, as Kafka's second.
        **_stop(process.kill, ""),
        **_start(process.start, lambda: process.pid, process.port, topics, "Tidelog, start after kill -9"),
        **_stop(process.kill, ""),
    }


def _kafka(folder: Path, topics: int) -> Figures:
    broker = _Kafka(folder.parent, {"metadata.log.dir": str(folder)}, heap_mb=1024, java_options=KAFKA_OPTIONS)

    def pid() -> int:
        assert broker.process is not None
        return broker.process.pid

    try:
        return {
            **_start(broker.start, pid, broker.port, topics, "Kafka, start on Tidelog's folder"),
            **_stop(broker.stop, "Kafka, stop"),
            **_start(broker.start, pid, broker.port, topics, "Kafka, clean start"),
            **_stop(broker.kill, ""),
            **_start(broker.start, pid, broker.port, topics, "Kafka, start after kill -9"),
        }
    finally:
        broker.kill()


class _Kafka(Kafka391):
    def _serves(self) -> bool:
        return True


def _serve(folder: Path) -> TidelogProcess:
    return TidelogProcess(folder, {"node.id": "1", "log.segment.delete.delay.ms": "60000"})


def _start(start: Callable[[], None], pid: Callable[[], int], port: int, topics: int, what: str) -> Figures:
    """Start a broker; return seconds from the process's start to the last topic's first answer, and of its processor time."""
    start()
    _wait(port, topics)
    return {
        f"{what}: s": time.monotonic() - process_start_s(pid()),
        f"{what}: CPU s": own_seconds(pid()),
    }


def _stop(stop: Callable[[], None], what: str) -> Figures:
    began = time.monotonic()
    stop()
    return {f"{what}: s": time.monotonic() - began} if what else {}


def _wait(port: int, topics: int) -> None:
    """Wait until a broker leads at least this many topics, and answers for the last."""
    deadline = time.monotonic() + PATIENCE_S
    while not _serves(port, topics):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topics} topics are not led")
        time.sleep(POLL_S)


def _serves(port: int, topics: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
            if not topics:
                return True
            last = frame(list_offsets_request(_name(topics - 1), {0: -1}), LIST_OFFSETS_VERSION)
            ends = read_response(ListOffsetsResponse, LIST_OFFSETS_VERSION, memoryview(answer_to(connection, last)))[1]
            if ends.topics[0].partitions[0].error_code:
                return False
            asked = frame(MetadataRequest(topics=None), METADATA_VERSION)
            told = read_response(MetadataResponse, METADATA_VERSION, memoryview(answer_to(connection, asked)))[1]
    except OSError:
        return False
    return sum(one.leader_id >= 0 for topic in told.topics for one in topic.partitions) >= topics


# --- judging


def ratios(found: Figures) -> Figures:
    """Return the figures that have a target."""
    compared = {}
    for how in ("one by one", "fifty a request"):
        for unit in ("ms a topic", "CPU ms a topic"):
            compared[f"{how}, the last to the first: {unit}"] = found[f"{how}, last: {unit}"] / found[f"{how}, first: {unit}"]
    for start in ("clean start", "start after kill -9"):
        if f"Kafka, {start}: s" in found:
            compared[f"{start}, Tidelog to Kafka"] = found[f"Tidelog, {start}: s"] / found[f"Kafka, {start}: s"]
    return compared


def missed(found: Figures) -> list[str]:
    return [what for what, ratio in ratios(found).items() if ratio > (MAX_RATIO if "Kafka" in what else MAX_GROWTH)]


def table(topics: int, found: Figures) -> str:
    lines = [f"{topics} topics", "", *(f"{what:56}{value:>10.3f}" for what, value in found.items()), ""]
    too_high = missed(found)
    lines += [f"{what:56}{value:>10.2f}{' missed' if what in too_high else ''}" for what, value in ratios(found).items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
