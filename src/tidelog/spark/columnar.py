"""Spark reads our Arrow batches as columns: what a session is given so that its scans are not turned into rows twice.

Of a source in Python Spark 4 makes rows: a projection turns each Arrow batch into them, the scan's plan turns these into rows
again, and after each hundred of them the source's metrics are put together. Most of a full read's time goes there.
`ColumnarReads.java` hands the batches on as columns instead (docs/decisions/0015).

| step | when | how |
|---|---|---|
| compile | once a user and version of Spark | Janino, as Spark compiles its generated code; the jar stays in the cache folder |
| hand out | once a context | `addJar`: the executors fetch it from the driver |
| put in | once a session | an optimizer rule (batches) and a planner strategy (streams) |

The classes call Spark's internals, so they are tied to the versions in `SPARK_VERSIONS`; and they are compiled against the Spark
that runs, so that a method that is gone shows then, not in a query. Whatever fails (a JVM that lets Python call few methods, no
folder for the jar, no JVM at hand), the session reads rows as before, and a warning says why, once a process.
`spark.tidelog.columnarReads=false` does the same by choice, and without a word. A session that was not registered reads rows,
too: the source itself warns then, once an application (`tidelog.spark.once`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.java import private_cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "spark.tidelog.columnarReads"
"""`false` leaves a session with Spark's own way through rows."""

SPARK_VERSIONS = ("4.3.",)
"""Prefix of the Spark versions that the classes support."""

_SOURCE = Path(__file__).with_name("ColumnarReads.java")
_PACKAGE = "tidelog.spark."

_warned: set[str] = set()
"""Why sessions of this process read rows; each is said once."""

_log = logging.getLogger("tidelog.spark")


def read_columns(spark: SparkSession) -> bool:
    """Make a session's scans of the source columnar, if that can be; return whether they are. Again is without effect."""
    try:
        if str(spark.conf.get(SETTING, "true")).lower() == "false":
            return False
        if not spark.version.startswith(SPARK_VERSIONS):
            _warn(f"columns need Spark {SPARK_VERSIONS[0]}x, this is {spark.version}")
            return False
        _put_in(spark)
    except Exception as error:
        # Whatever it is, the answers are the same without: no session may fail of it. What Py4J forbids comes in many classes.
        _warn(first_line(error))
        return False
    return True


def first_line(error: BaseException) -> str:
    """Return what an error says, without the stack of the JVM that often follows."""
    from pyspark.errors import PySparkException

    if isinstance(error, (PySparkException, AttributeError)):
        return f"no JVM in this process, as with Spark Connect ({type(error).__name__})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J first names the object that was called, by a number, then what Java said.
    said = next((line.removeprefix(":").strip() for line in lines if line.startswith(":")), None)
    return said or (lines[0] if lines else type(error).__name__)


def _warn(reason: str) -> None:
    if reason not in _warned:
        _warned.add(reason)
        _log.warning("Spark reads the source by rows, not columns: the same answers, more slowly: %s", reason)


def _put_in(spark: SparkSession) -> None:
    """Give the session the rule and the strategy, unless it has them."""
    jvm: Any = spark._jvm
    methods: Any = spark._jsparkSession.experimental()
    if f"{_PACKAGE}ColumnarReads" in {rule.getClass().getName() for rule in _each(methods.extraOptimizations())}:
        return
    jar = _jar(jvm, spark.version)
    context: Any = spark.sparkContext._jsc
    if not any(str(known).endswith(f"/{jar.name}") for known in _each(context.sc().listJars())):
        context.addJar(str(jar))
    rule, strategy = _instances(spark.sparkContext._gateway, jvm, jar, "ColumnarReads", "ColumnarStreams")
    # The setters' names are no Python names.
    getattr(methods, "extraOptimizations_$eq")(methods.extraOptimizations().appended(rule))
    getattr(methods, "extraStrategies_$eq")(methods.extraStrategies().appended(strategy))


def _each(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.length())]


def _jar(jvm: Any, version: str) -> Path:
    """Return the jar of the compiled classes; made if there is none for this source and Spark."""
    source = _SOURCE.read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{version}\n{source}".encode()).hexdigest()[:16]
    jar = private_cache_folder() / f"columnar-{digest}.jar"
    if jar.exists():
        return jar
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    classes = compiler.getBytecodes()
    handle, fresh = tempfile.mkstemp(prefix=f".{jar.name}.", dir=jar.parent)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for name in classes:
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(classes[name]))
        # Whole or not at all: other processes may be making it too, with the same content.
        Path(fresh).replace(jar)
    finally:
        Path(fresh).unlink(missing_ok=True)
    return jar


def _instances(gateway: Any, jvm: Any, jar: Path, *names: str) -> list[Any]:
    """Return an object of each class, loaded from the jar beside what Spark's own loader has."""
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    no_types, no_values = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    return [loader.loadClass(f"{_PACKAGE}{name}").getConstructor(no_types).newInstance(no_values) for name in names]
