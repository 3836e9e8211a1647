"""An archive of the classes that Spark loads, shared by Spark's JVMs (class data sharing): loading them is half of a JVM's start.

    python -m tests.spark_classes

makes the archive, which takes as long as three starts. `make interop`, which has dozens of starts, makes it first, in the
background, and `.ci/run` before that. Without a matching archive, a JVM silently loads its classes as usual.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kafka.jars import MADE, made_once

VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of a driver's JVM; Spark passes them on silently."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


def archive() -> Path | None:
    """Return the path of the archive for this Java and PySpark, existing or not; None if one of them is missing."""
    from tidelog.errors import NotFoundError
    from tidelog.spark.java import find_java

    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        return None
    try:
        java = find_java()
    except NotFoundError:
        return None
    parts = (str(java.resolve()), spark.origin, str(Path(spark.origin).stat().st_mtime_ns))
    return MADE / f"spark-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.jsa"


def share() -> None:
    """Make the Spark JVMs of this process and its children use the archive once it exists."""
    path = archive()
    if path is not None:
        os.environ.setdefault(VARIABLE, f'"-XX:SharedArchiveFile={path}" -Xlog:disable -Xlog:all=error:stderr')


def variables() -> dict[str, str]:
    """Return what `share` has set in the environment, for a program with an environment of its own."""
    return {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}


@contextmanager
def being_made() -> Iterator[None]:
    """Make the archive in the background of the block, if it does not exist."""
    path = archive()
    if path is None or path.exists():
        yield
        return
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield
    if process.returncode:
        print(f"the classes of Spark were not kept: see python -m {__name__}", file=sys.stderr)


def main() -> None:
    """Make the archive, once."""
    path = archive()
    os.environ.pop(VARIABLE, None)
    if path is not None:
        made_once(path, _make)


def _make(path: Path) -> None:
    """Read and write a little, in a batch and in a stream, and archive the classes loaded for that."""
    from pyspark import SparkContext

    from tests.spark.golden import log_dir
    from tidelog.spark import session

    java = {"spark.driver.extraJavaOptions": f"{QUICK} -XX:ArchiveClassesAtExit={path} -Xlog:disable"}
    spark = session("classes", master="local[2]", config=SETTINGS | java)
    options: dict[str, Any] = {"path": log_dir(), "subscribe": "v2-zstd-ct"}
    rows = spark.read.format("tidelog").options(**options).load()
    rows.where("offset > 1").groupBy("partition").count().collect()
    with tempfile.TemporaryDirectory(prefix="classes-") as folder:
        stream = spark.readStream.format("tidelog").options(**options, startingOffsets="earliest").load().writeStream
        at_once = stream.option("checkpointLocation", folder).trigger(availableNow=True)
        at_once.foreachBatch(lambda batch, number: batch.toArrow()).start().awaitTermination()
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
