"""Lets Spark read Tidelog's Arrow batches as columns, so that Spark does not convert them to rows twice.

Spark 4 converts the batches of a Python source to rows: first by a projection, then again in the scan's plan. After each hundred
rows it collects the source's metrics. This takes most of a full read's time. `ColumnarReads.java` passes the batches on as
columns instead (docs/decisions/0015), and `FlatColumn.java` reads the columns' values.

| session | the classes come from |
|---|---|
| started with the jar (by `session`, `spark.jars`, Spark's folder of jars) | the jar: Spark finds `ColumnarSessions` in it |
| registered later | the jar, which the executors get by `addJar`: an optimizer rule, and a planner strategy for streams |
| registered later, a patch release not in `TESTED` | the same, compiled by Janino, once per user, into the cache folder |

In the first case, sessions made by `newSession()` also read columns.

The classes call Spark's internals. The package's jar has classes for the releases in `TESTED`; with any other release the jar
does nothing. Compiling is limited to `SPARK_VERSIONS`. The classes are compiled against the running Spark, so that a missing
method shows at compile time, not in a query. If anything fails (a JVM that lets Python call few methods, no folder for the jar,
no accessible JVM), the session reads rows, and a warning gives the reason, once per process. `spark.tidelog.columnarReads=false`
makes a session read rows without a warning. A session that neither has the jar nor was registered reads rows, and the source
warns once per application (`tidelog.spark.processes.once`).
"""

from __future__ import annotations

import hashlib
import io
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
"""`false` keeps Spark's own conversion to rows in a session."""

SPARK_VERSIONS = ("4.3.",)
"""Prefixes of the Spark versions that the classes support."""

TESTED = ("4.3.0",)
"""The releases that the package's jar was made for and tested with."""

_SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in ("FlatColumn", "ColumnarReads"))
"""The Java sources. Each may use the classes of the sources before it."""

_PACKAGE = "tidelog.spark."
_SERVICE = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"

_warned: set[str] = set()
"""The reasons, already logged, why sessions of this process read rows."""

_log = logging.getLogger("tidelog.spark")


def columns_jar() -> Path:
    """Return the path of the jar with which a Spark session of a tested release (`TESTED`) reads columns from its start.

    Name it in `spark.jars` or `--jars`, or put it in Spark's folder of jars. Any other release ignores it.
    """
    return Path(__file__).with_name("columnar.jar")


def read_columns(spark: SparkSession) -> bool:
    """Make a session's scans of the source columnar if possible, and return whether they are columnar. Idempotent."""
    try:
        if str(spark.conf.get(SETTING, "true")).lower() == "false":
            return False
        if not spark.version.startswith(SPARK_VERSIONS):
            _warn(f"columns need Spark {SPARK_VERSIONS[0]}x; this is {spark.version}")
            return False
        _put_in(spark)
    except Exception as error:
        # Results are the same without columnar reads, so no error here may fail the session. Py4J raises many classes of errors.
        _warn(first_line(error))
        return False
    return True


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the JVM's stack trace."""
    from pyspark.errors import PySparkException

    if isinstance(error, (PySparkException, AttributeError)):
        return f"there is no JVM in this process, as with Spark Connect ({type(error).__name__})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J's message first names the called object by a number; Java's message follows.
    said = next((line.removeprefix(":").strip() for line in lines if line.startswith(":")), None)
    return said or (lines[0] if lines else type(error).__name__)


def _warn(reason: str) -> None:
    if reason not in _warned:
        _warned.add(reason)
        _log.warning("Spark reads the source as rows instead of columns, which gives the same results but is slower: %s", reason)


def _put_in(spark: SparkSession) -> None:
    """Install the optimizer rule and the planner strategy in the session, unless the session has them already."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    methods: Any = session.experimental()
    present = [*_each(session.sessionState().columnarRules()), *_each(methods.extraOptimizations())]
    if {f"{_PACKAGE}ColumnarBatches", f"{_PACKAGE}ColumnarReads"} & {rule.getClass().getName() for rule in present}:
        return
    jar = columns_jar() if spark.version in TESTED else _jar_for(jvm, spark.version)
    context: Any = spark.sparkContext._jsc
    if not any(str(known).endswith(f"/{jar.name}") for known in _each(context.sc().listJars())):
        context.addJar(str(jar))
    rule, strategy = _instances(spark.sparkContext._gateway, jvm, jar, "ColumnarReads", "ColumnarStreams")
    # The setters' names are not valid in Python.
    getattr(methods, "extraOptimizations_$eq")(methods.extraOptimizations().appended(rule))
    getattr(methods, "extraStrategies_$eq")(methods.extraStrategies().appended(strategy))


def _each(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.length())]


def _jar_for(jvm: Any, version: str) -> Path:
    """Return the path of the jar with the classes compiled for this Spark version. If there is no jar for the current source
    code, compile the classes.
    """
    digest = hashlib.sha256("\n".join([version, *_texts()]).encode()).hexdigest()[:16]
    jar = private_cache_folder() / f"columnar-{digest}.jar"
    if jar.exists():
        return jar
    content = compiled(jvm)
    handle, fresh = tempfile.mkstemp(prefix=f".{jar.name}.", dir=jar.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # Write atomically: other processes may be creating the same jar, with the same content.
        Path(fresh).replace(jar)
    finally:
        Path(fresh).unlink(missing_ok=True)
    return jar


def _texts() -> list[str]:
    return [source.read_text(encoding="utf-8") for source in _SOURCES]


def compiled(jvm: Any) -> bytes:
    """Compile the classes with the running Spark's Janino, and return a jar. The jar has the same bytes each time."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    files = {_SERVICE: f"{_PACKAGE}ColumnarSessions\n".encode()}
    for text in _texts():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(text)
        classes, loader = compiler.getBytecodes(), compiler.getClassLoader()
        files |= {f"{name.replace('.', '/')}.class": bytes(classes[name]) for name in classes}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _instances(gateway: Any, jvm: Any, jar: Path, *names: str) -> list[Any]:
    """Return an instance of each class, loaded from the jar by a class loader on top of Spark's."""
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    no_types, no_values = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    return [loader.loadClass(f"{_PACKAGE}{name}").getConstructor(no_types).newInstance(no_values) for name in names]
