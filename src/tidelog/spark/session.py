"""Creates a Spark session with the source, or registers the source in an existing session.

`session` is for programs without a session. Before a JVM starts, it sets `JAVA_HOME` (see `tidelog.spark.java`) and the workers'
Python, which must be the Python in which Tidelog is installed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import IO, TYPE_CHECKING, Any

from tidelog.extras import imported_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SET_BY_STREAMS = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""Environment variables of a stream source's Python process, which Spark sets each time it starts the registered source."""

_UNCHECKED_ARROW = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
"""Turns off Arrow's check of bounds and nulls at each value. Tidelog's reads know their lengths and check for nulls themselves.
But everything else that uses Arrow in that JVM, such as `applyInPandas` and a user's own Java, also loses the checks.
"""


_DAEMON = "spark.python.daemon.module"
_QUIET_DAEMON = "tidelog.spark.quiet_daemon"

_OF_OPTIONS = "spark.sql.redaction.options.regex"
_SPARKS = "(?i)url"
_REDACTED = _SPARKS + r"|[.]auth[.]|jaas|ssl[.].*key"
"""The options of a SQL statement that plans and the UI redact. Spark's own rules know `password`, `secret` and `token`, but not
`schema.registry.basic.auth.user.info` and `kafka.ssl.keystore.key`.
"""


def register(spark: SparkSession) -> None:
    """Register the source `tidelog` with a session, for `spark.read.format("tidelog")`.

    PySpark finds the source by itself if the Python that it starts (`PYSPARK_PYTHON`) has Tidelog. Registering has these
    additional effects. The source knows the session's default parallelism and cuts at least that many splits. Scans are columnar
    (`tidelog.spark.columnar`). Several streams may be started concurrently. A local session for which no Python is configured
    runs its workers with this process's Python from now on. Plans redact all secrets among the options in SQL, unless the session
    has its own `spark.sql.redaction.options.regex`.
    """
    from tidelog.spark.columnar import read_columns
    from tidelog.spark.source import source_class

    _use_this_python(spark)
    if spark.conf.get(_OF_OPTIONS, _SPARKS) == _SPARKS:
        with suppress(Exception):  # A platform may forbid this, with any of Py4J's errors.
            spark.conf.set(_OF_OPTIONS, _REDACTED)
    read_columns(spark)
    with _environment_of_streams(spark):
        spark.dataSource.register(source_class(_default_parallelism(spark), _storage_settings(spark)))


def _use_this_python(spark: SparkSession) -> None:
    """Let the workers of a local session run the Python of this process, which has Tidelog, unless another Python is configured.

    PySpark starts the `python3` on the PATH. That is a different Python if a program runs with an environment's Python while the
    environment is not active (IDEs, cron). The workers of a cluster are on other machines, so their Python is not changed.
    `tidelog.spark.quiet_daemon` starts this Python's workers from now on.
    """
    try:
        context = spark.sparkContext
        is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
        if not sys.executable or not (context.master or "").startswith("local"):
            return
        if not is_named:
            context.pythonExec = sys.executable
        java: Any = context._jsc
        conf = java.sc().conf()
        if context.pythonExec == sys.executable and not conf.contains(_DAEMON):
            conf.set(_DAEMON, _QUIET_DAEMON)
    except _not_at_hand():
        return  # With Spark Connect, the server chooses the Python.


@contextmanager
def _environment_of_streams(spark: SparkSession) -> Iterator[None]:
    """Put all names that a starting stream sets into the registered source's environment beforehand.

    All queries of a source share that environment, a plain `HashMap`. If two starting streams add to the map concurrently, it may
    end up with fewer entries than its size says. Then no task of the session can be deserialized (`OptionalDataException`). For
    names that exist already, Spark only replaces values, which is harmless.
    """
    try:
        environment: dict[str, Any] = spark.sparkContext.environment
    except _not_at_hand():
        yield  # With Spark Connect, the server has the map.
        return
    new = [name for name in _SET_BY_STREAMS if name not in environment]
    environment.update(dict.fromkeys(new, ""))
    try:
        yield
    finally:
        for name in new:
            del environment[name]


def is_submitted() -> bool:
    """Return whether spark-submit has started this process, with a JVM and a master to use."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def session(
    app_name: str = "tidelog",
    *,
    master: str | None = None,
    config: dict[str, Any] | None = None,
    java_output: IO[bytes] | None = None,
    unchecked_arrow: bool = False,
) -> SparkSession:
    """Return the active Spark session, or a new one, with the source registered.

    Args:
        app_name: the application's name in Spark.
        master: Spark's master URL; `local[*]` if neither this nor the configuration names one.
        config: Spark properties, set before the session starts.
        unchecked_arrow: start the JVM without Arrow's checks of bounds and nulls. Full reads are a little faster, but everything
            that uses Arrow in that JVM loses the checks. This has no effect on a running JVM.
        java_output: receives the stderr of the JVM, if a JVM is started. None: the JVM writes to this process's stderr.

    Raises:
        MissingPackageError: PySpark is not installed.
        NotFoundError: there is no Java 17 or newer.
    """
    with imported_from("spark", "PySpark"):
        from pyspark.sql import SparkSession

    from tidelog.spark.java import ensure_java
    from tidelog.spark.spark_home import light_spark_home

    spark = SparkSession.getActiveSession()
    if spark is None:
        if not is_submitted():
            ensure_java()
        # Spark's default is the `python3` on the JVM's PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
        settings: dict[str, Any] = {key: str(value) for key, value in (config or {}).items()} | {"spark.app.name": app_name}
        if master is not None:
            settings["spark.master"] = master
        if unchecked_arrow and not is_submitted():
            settings = _without_checks(settings)
        if not is_submitted():
            settings = _with_columns(settings)
        with nullcontext() if is_submitted() else light_spark_home(settings.get("spark.master")):
            if java_output is not None and not is_submitted():
                _start_java(settings, java_output)
            spark = SparkSession.builder.config(map=settings).getOrCreate()
    register(spark)
    return spark


def _without_checks(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings plus the Java options that switch off Arrow's checks in a new JVM. Options that the settings already
    have are kept.
    """
    java = str(settings.get("spark.driver.extraJavaOptions", ""))
    flags = [flag for flag in _UNCHECKED_ARROW if flag.split("=")[0] not in java]
    return settings | {"spark.driver.extraJavaOptions": " ".join([java, *flags]).strip()}


def _with_columns(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings plus the jar with which a session reads columns from its start."""
    from tidelog.spark.columnar import columns_jar

    return settings | {"spark.jars": ",".join(filter(None, [str(settings.get("spark.jars", "")), str(columns_jar())]))}


def _start_java(settings: dict[str, Any], output: IO[bytes]) -> None:
    """Start the JVM with its stderr redirected, and create the session's Spark context."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    with _signals_later():
        gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Delay Ctrl-C and termination signals until the block ends: a JVM that is abandoned during its start would run forever."""
    came: list[int] = []
    try:
        previous = {
            number: signal.signal(number, lambda number, frame: came.append(number)) for number in (signal.SIGINT, signal.SIGTERM)
        }
    except ValueError:
        previous = {}  # Only the main thread handles signals.
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _default_parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks the session runs in parallel by default; None if unknown."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except _not_at_hand():
        return None


def _storage_settings(spark: SparkSession) -> dict[str, str]:
    """Return the session's settings for S3 (`spark.hadoop.fs.s3a.…`), or an empty dict if they are not accessible."""
    from tidelog.spark.storage_options import settings_of

    try:
        context: Any = spark.sparkContext._jsc
        return settings_of(context.hadoopConfiguration())
    except _not_at_hand():
        return {}


def _not_at_hand() -> tuple[type[Exception], ...]:
    """Return the exceptions that are raised if there is no JVM (Spark Connect), or if a platform lets Python call only a few of
    the JVM's methods.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, AttributeError, Py4JError
