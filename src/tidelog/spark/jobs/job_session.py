"""The Spark session of a job that runs from the shell. It is started silently, and closed at the end.

The stderr of Spark's Java (notices about host names and native libraries, traces of workers) goes to a hidden file. If Java exits
at startup, the last line of that file becomes the error. PySpark's errors are reduced to one line. `TIDELOG_TRACEBACK=1` shows
everything. An existing session is used, and is not closed. Under spark-submit the existing JVM, master and log are used.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.spark.session import is_submitted, register, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

QUIET: dict[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}
"""Settings of every session that `job_session` starts. Its `config` takes precedence."""

LOCAL_CONFIG: dict[str, str] = {
    # Make the session unreachable from outside, and avoid name resolution.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Java only distributes tasks, so let it start faster and leave the processors to the tasks.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
}
"""Additional settings if the workers run on this machine."""

_IN_MAIN = 'Exception in thread "main" '
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Warning|Exit))(?:: (.*))?$", re.MULTILINE)


@contextmanager
def job_session(name: str, master: str | None = None, config: dict[str, str] | None = None) -> Iterator[SparkSession]:
    """Provide a Spark session for the block.

    Raises InvalidArgumentError if `master` is given under spark-submit, NotFoundError without PySpark or Java, and a one-line
    TidelogError for Spark's errors at startup or in the block.
    """
    if master is not None and is_submitted():
        raise InvalidArgumentError("spark-submit sets the master: leave the option out", found=master)
    is_verbose = bool(os.environ.get("TIDELOG_TRACEBACK"))
    with tempfile.TemporaryFile() as java_log, nullcontext() if is_verbose else _silent_bridge():
        try:
            before = _active()
            spark = before or _start(name, master, config or {}, None if is_verbose else java_log)
            yield spark
        except Exception as error:
            if is_verbose or not _is_sparks(error):
                raise
            raise TidelogError(f"Spark: {_one_line(error, java_log)}") from error
        if before is None:
            spark.stop()


@contextmanager
def _silent_bridge() -> Iterator[None]:
    """Keep Py4J's log off stderr. It has a trace for each call that Ctrl-C interrupts, and a root logger without handlers writes
    to stderr.
    """
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        return None  # `session` raises an error that says what to install.
    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
    return active


def _start(name: str, master: str | None, config: dict[str, str], java_log: IO[bytes] | None) -> SparkSession:
    if is_submitted():
        return session(name, config=config)
    master = master or config.get("spark.master", LOCAL)
    is_local = master.startswith("local")
    given = {**QUIET, **(LOCAL_CONFIG if is_local else {}), **config}
    spark = session(name, master=master, config=given, java_output=java_log)
    if is_local:
        _wake(spark)
    return spark


def _wake(spark: SparkSession) -> None:
    """Start Python workers and load Spark's DataFrame classes now, in parallel. A local session would do both when they are first
    needed.
    """
    context = spark.sparkContext
    tasks = context.parallelize(range(context.defaultParallelism), context.defaultParallelism)

    def wake() -> None:
        with suppress(Exception):  # If workers cannot start, the first task that needs them reports it.
            tasks.foreach(_import_logs)

    thread = threading.Thread(target=wake, name="tidelog-job-wake", daemon=True)
    thread.start()
    spark.createDataFrame([], "kind string")
    thread.join()


def _import_logs(task: int) -> None:
    """On a worker: import the modules that most jobs need."""
    for module in ("tidelog.reader.log_dir", "tidelog.check.segments"):
        import_module(module)


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def _one_line(error: Any, java_log: IO[bytes]) -> str:
    """Return the important line of an error: the line of a worker's exception, or the first line of Java's message."""
    text = str(error)
    if getattr(error, "getCondition", lambda: None)() == "JAVA_GATEWAY_EXITED":
        java_log.seek(0)
        lines = [line.strip() for line in java_log.read().decode(errors="replace").splitlines()]
        lines = [line for line in lines if line and not line.startswith(("at ", "... "))]
        return f"Java exited at startup: {lines[-1].removeprefix(_IN_MAIN)}" if lines else "Java exited at startup"
    raised = _PYTHON_ERROR.findall(text) if "Traceback (most recent call last)" in text else []
    if raised:
        kind, message = raised[-1]
        return f"a worker raised {kind}: {message} (TIDELOG_TRACEBACK=1 shows where)"
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else text
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
