"""The clients, which are the same for both brokers: a raw client in C, librdkafka, and the Java client. Each is compiled or
located when it is first used.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from tests.kafka.jars import classpath

from bench.children.scratch import scratch

HERE = Path(__file__).parent
OUT = scratch("broker")
TIMEOUT_S = 300
JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
_PERFORMANCE = re.compile(r"([0-9]+) records sent, ([0-9.,]+) records/sec .*? ([0-9]+) ms 99th", re.DOTALL)


class Result(NamedTuple):
    """A client's result. `requests` counts records if the client does not report requests; latencies are in microseconds, or
    None.
    """

    seconds: float
    requests: int
    bytes: int
    p50_us: float | None = None
    p99_us: float | None = None
    fewest: int = 0
    """The number of responses to the raw client's connection that got the fewest."""
    most: int = 0
    longest_us: float | None = None
    """The longest time for which a connection of the raw client waited for a response, including waits that had not ended at
    the end.
    """


def _compiled(name: str) -> Path:
    target = OUT / "bin" / name
    if not target.exists():  # The benchmark that ran before in this process has removed its files.
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", str(target), str(HERE / f"{name}.c"), "-ldl"], check=True, timeout=TIMEOUT_S)
    return target


def _compiled_java(name: str) -> Path:
    target = OUT / "classes"
    if not (target / f"{name}.class").exists():
        target.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-d", str(target), "-cp", classpath("3.9.1"), str(HERE / f"{name}.java")]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return target


@cache
def _librdkafka() -> Path:
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    return next(folder.glob("librdkafka-*.so*"))


class RawClient:
    """One run of the raw client, in the background until `result`. `connections` holds the frames that each connection
    replays.
    """

    def __init__(
        self, port: int, connections: Sequence[bytes], *, depth: int = 1, count: int = 0, seconds: float = 0, name: str = "raw"
    ) -> None:
        folder = OUT / "frames"
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{name}-{i}" for i in range(len(connections))]
        for path, frames in zip(paths, connections, strict=True):
            path.write_bytes(frames)
        command = [str(_compiled("raw_client")), str(port), str(depth), str(count), str(seconds), *map(str, paths)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def result(self) -> Result:
        """Wait for the end of the run, and return the result. Raises RuntimeError if the broker closed the connection."""
        printed, _ = self._process.communicate(timeout=TIMEOUT_S)
        if self._process.returncode:
            raise RuntimeError(f"the raw client ended with {self._process.returncode}")
        told = json.loads(printed)
        size = max(told["bytes_out"], told["bytes_in"])
        latencies = told.get("p50_us"), told.get("p99_us")
        return Result(told["seconds"], told["responses"], size, *latencies, told["fewest"], told["most"], told["longest_us"])


def raw(port: int, connections: Sequence[bytes], **how: float) -> Result:
    """Run the raw client to its end."""
    return RawClient(port, connections, **how).result()  # type: ignore[arg-type]


def librdkafka(what: str, port: int, topic: str, partitions: int, records: int, record_bytes: int, **properties: str) -> Result:
    """Produce or consume `records` records with librdkafka."""
    settings = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    numbers = [str(number) for number in (partitions, records, record_bytes if what == "produce" else 0)]
    command = [str(_compiled("rdkafka_client")), str(_librdkafka()), what, str(port), topic, *numbers, *settings]
    return _reported(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)


def java_consume(bootstrap: str, topic: str, partitions: int, records: int) -> Result:
    """Consume with the Java client, partitions assigned."""
    where = f"{_compiled_java('AssignedConsumer')}:{classpath('3.9.1')}"
    command = ["java", *JAVA, "-cp", where, "AssignedConsumer", bootstrap, topic, str(partitions), str(records)]
    return _reported(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)


def java_produce(bootstrap: str, topic: str, records: int, record_bytes: int, **properties: str) -> Result:
    """Produce with Kafka's own ProducerPerformance."""
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": "5"}
    settings |= {name.replace("_", "."): value for name, value in properties.items()}
    command = ["java", *JAVA, "-cp", classpath("3.9.1"), "org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
    command += ["--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1", "--producer-props"]
    command += [f"{name}={value}" for name, value in settings.items()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    last = printed.strip().splitlines()[-1]
    found = _PERFORMANCE.search(last)
    if found is None:
        raise RuntimeError(f"ProducerPerformance said: {last}")
    seconds = records / float(found[2].replace(",", "."))
    return Result(seconds, int(found[1]), records * record_bytes, None, float(found[3]) * 1000)


def _reported(printed: str) -> Result:
    told = json.loads(printed.strip().splitlines()[-1])
    return Result(told["seconds"], told["records"], told["bytes"])
