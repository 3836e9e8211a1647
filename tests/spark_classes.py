"""The classes that Spark loads, kept for each JVM of Spark that starts (class data sharing): to read them is half of its start.

    python -m tests.spark_classes

makes the archive, which takes as long as three starts; `make interop`, which has dozens, begins with that and goes on meanwhile.
Where there is none, or one that does not suit, a JVM reads its classes as ever, and says nothing.
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

from tests.kafka.jars import JARS, made_once

VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of a driver's JVM; Spark hands them on without a word."""

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
    """Return where the archive of this Java and this PySpark is, or would be; None without one of them."""
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
    return JARS / f"spark-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.jsa"


def share() -> None:
    """Have the JVMs of Spark that this process and its children start map the archive once it is there."""
    path = archive()
    if path is not None:
        os.environ.setdefault(VARIABLE, f'"-XX:SharedArchiveFile={path}" -Xlog:disable -Xlog:all=error:stderr')


@contextmanager
def being_made() -> Iterator[None]:
    """Make the archive beside the block, if it is not there."""
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
        made_once(path.name, _make)


def _make(path: Path) -> None:
    """Read a little, write a little, in a batch and in a stream, and keep what has been loaded for that."""
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
