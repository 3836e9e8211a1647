"""`tidelog job rebuild`: every index of a folder rebuilt on Spark, against Kafka 3.9.1's own recovery, and on one CPU and two.

The folder is that of `recovery_bench`: a topic of four partitions, several idempotent producers, only `.log` files left.
In turn a broker starts on it with two recovery threads, and Spark rebuilds it with two (`local[2]`), each in its own process.
The indexes must be equal.

| | what it is |
|---|---|
| Kafka | the time in its log: "Loaded 4 logs in N ms" |
| Spark | `rebuild_indexes` from call to result, the first job of its session |
| session | the start of JVM, session and Python workers, shown separately |

Kafka makes no time maps, so the ratio is for a rebuild without them; one with time maps, which reads the logs twice, is shown
too. Then the same rebuild on one CPU (`taskset -c 0`, `local[1]`) and on two (`taskset -c 0,1`, `local[2]`), with the JVM on the
same CPUs.

    python -m bench.index_job_bench [--gb 8.6] [--runs 3] [--batch-bytes 1024 16384] [--min-ratio 3] [--min-scaling 1.6] [--json]

`--gb 0.3 --runs 1` is a quick trial. Needs Java and Maven (without: `--core`, Spark alone). Its files are in bench/out and are
removed at the end. The logs are in the page cache for all runs, if there is enough memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kafka.brokers import Kafka391
from tests.kafka.jars import why_not

from bench.children.scratch import scratch
from bench.recovery_bench import HEAP_MB, JAVA_OPTIONS, LOG4J, PARTITIONS, TOPIC, crash, fill, indexes_of, kafka_s

OUT = scratch("index_job")
THREADS = 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="indexes rebuilt on Spark, against Kafka 3.9.1's recovery, and on one CPU and two"
    )
    parser.add_argument("--gb", type=float, default=8.6, help="bytes of all logs, in units of 10^9")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch-bytes", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--min-ratio", type=float, default=3.0, help="end with 1 below this ratio to Kafka")
    parser.add_argument(
        "--min-scaling", type=float, default=1.6, help="end with 1 if two CPUs are not so many times as fast as one"
    )
    parser.add_argument("--core", action="store_true", help="Spark alone")
    parser.add_argument("--json", action="store_true", help="print one JSON line instead of a table")
    options = parser.parse_args(arguments)
    reason = None if options.core else why_not()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 0
    results = [run(size, options.gb, options.runs, with_kafka=not options.core) for size in options.batch_bytes]
    print(json.dumps(results) if options.json else table(results))
    is_fast = all(result.get("ratio", options.min_ratio) >= options.min_ratio for result in results)
    scales = all(result.get("scaling", options.min_scaling) >= options.min_scaling for result in results)
    return 0 if is_fast and scales else 1


def run(batch_bytes: int, gb: float, runs: int, *, with_kafka: bool) -> dict[str, Any]:
    """Time Kafka and Spark in turn on logs with batches of one size; return the median seconds."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    try:
        log4j = OUT / "log4j.properties"
        log4j.write_text(LOG4J)
        broker = Kafka391(OUT / "kafka", heap_mb=HEAP_MB, java_options=(*JAVA_OPTIONS, f"-Dlog4j.configuration={log4j.as_uri()}"))
        if with_kafka:
            broker.start()
            broker.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1"})
            broker.stop()
        folders = [broker.partition_folder(TOPIC, partition) for partition in range(PARTITIONS)]
        size = sum(fill(folder, int(gb * 1e9 / PARTITIONS), batch_bytes, seed) for seed, folder in enumerate(folders))
        seen: dict[str, list[float]] = {}
        for _ in range(runs):
            for name, seconds in one_round(broker, folders, with_kafka=with_kafka).items():
                seen.setdefault(name, []).append(seconds)
        medians = {name: statistics.median(values) for name, values in seen.items()}
        result: dict[str, Any] = {"batch_bytes": batch_bytes, "bytes": size, "threads": THREADS, "runs": seen, "medians": medians}
        if with_kafka:
            result["ratio"] = medians["kafka"] / medians["spark"]
            result["ratio_with_time_maps"] = medians["kafka"] / medians["spark_time_maps"]
        if "one_cpu" in medians:
            result["scaling"] = medians["one_cpu"] / medians["two_cpus"]
        return result
    finally:
        shutil.rmtree(OUT, ignore_errors=True)


def one_round(broker: Kafka391, folders: list[Path], *, with_kafka: bool) -> dict[str, float]:
    """Run each once on the same folder; return the seconds by name."""
    crash(broker.data)
    ours = spark_run(broker.data, THREADS)
    seconds = {"session": ours["session_s"], "spark": ours["job_s"]}
    if with_kafka:
        indexes = indexes_of(folders)
        crash(broker.data)
        seconds["kafka"] = kafka_s(broker, THREADS)
        if indexes_of(folders) != indexes:
            raise RuntimeError("the two made different indexes")
    crash(broker.data)
    seconds["spark_time_maps"] = spark_run(broker.data, THREADS, "--time-maps")["job_s"]
    if cpus() >= 2:
        crash(broker.data)
        seconds["one_cpu"] = spark_run(broker.data, 1, cpu_list="0")["job_s"]
        crash(broker.data)
        seconds["two_cpus"] = spark_run(broker.data, 2, cpu_list="0,1")["job_s"]
    return seconds


def cpus() -> int:
    """Return the number of CPUs to which a child process can be bound, 0 if `taskset` is missing."""
    return 0 if shutil.which("taskset") is None else len(os.sched_getaffinity(0))


def spark_run(data: Path, threads: int, *options: str, cpu_list: str | None = None) -> dict[str, Any]:
    """Rebuild a folder in a separate process, with its JVM and workers on the given CPUs."""
    command = [sys.executable, "-m", "bench.children.index_job_child", str(data), "--master", f"local[{threads}]", *options]
    if cpu_list is not None:
        command = ["taskset", "-c", cpu_list, *command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the rebuild failed: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if answer["faults"] or not answer["new"]:
        raise RuntimeError(f"nothing was rebuilt: {answer}")
    return answer


def table(results: list[dict[str, Any]]) -> str:
    lines = [f"Every index rebuilt, medians, {THREADS} threads each"]
    for result in results:
        medians = result["medians"]
        gb = result["bytes"] / 1e9
        line = f"  {gb:.1f} GB in batches of {result['batch_bytes']:>6,} bytes"
        line += (
            f"   Spark {gb / medians['spark']:5.2f} GB/s ({medians['spark']:.1f} s; its session took {medians['session']:.1f} s)"
        )
        line += f", with time maps {gb / medians['spark_time_maps']:5.2f}"
        if "ratio" in result:
            line += f"   Kafka {gb / medians['kafka']:5.2f} GB/s ({medians['kafka']:.1f} s)   {result['ratio']:.1f} times"
            line += f", with time maps {result['ratio_with_time_maps']:.1f}"
        lines.append(line)
        if "scaling" in result:
            line = f"    one CPU {medians['one_cpu']:.1f} s, two {medians['two_cpus']:.1f} s   {result['scaling']:.2f} times"
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
