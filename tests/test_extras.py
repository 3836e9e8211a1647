"""What an extra brings and is not installed is said at the import that needs it, in one line."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tidelog.errors import MissingPackageError, TidelogError
from tidelog.extras import imported_from

ROOT = Path(__file__).parent.parent
SPARK = ("source", "columns", "sink.writers", "stream.stream_reader", "stream.refused_stream")
WITHOUT = """
import sys
sys.modules[{package!r}] = None
from importlib import import_module
try:
    import_module({module!r})
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("module", "package", "name"),
    [("tidelog.sources.lookups", "numpy", "numpy"), *((f"tidelog.spark.{one}", "pyspark", "PySpark") for one in SPARK)],
)
def test_an_import_names_the_extra(module: str, package: str, name: str) -> None:
    code = WITHOUT.format(package=package, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    assert (done.stdout, done.stderr) == (f"MissingPackageError {name} is not installed: pip install 'tidelog[spark]'\n", "")


def test_the_error_is_both_kinds_and_crosses_processes() -> None:
    with pytest.raises(MissingPackageError) as raised, imported_from("spark", "Nothing"):
        import tidelog.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    error = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(error, TidelogError) and isinstance(error, ImportError)
    assert str(error) == "Nothing is not installed: pip install 'tidelog[spark]'"


def test_the_extras_there_are() -> None:
    """Those that messages and documents name, and `all` has every one that a user may want."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [
        path.read_text(encoding="utf-8") for path in (*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md")
    ]
    named = {name for text in texts for one in re.findall(r"tidelog\[([a-z,]+)\]", text) for name in one.split(",")}
    assert named <= set(extras)
    assert extras["all"] == ["tidelog[decode,handover,hdfs,oauth,objects,patterns,spark,sql,tiered,ui,zookeeper]"]


def test_windows_is_refused_in_one_sentence() -> None:
    code = "import os\nos.name = 'nt'\ntry:\n    import tidelog\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    assert done.stdout.startswith("Tidelog runs on Linux and macOS, not on Windows") and done.stdout.count("\n") == 1, done.stderr


ANSWERED = """
import atexit, sys
import tidelog.cli
atexit.register(lambda: print(sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys()), file=sys.stderr))
sys.argv = ["tidelog", *sys.argv[1:]]
tidelog.cli.main()
"""


@pytest.mark.parametrize(
    "command",
    [
        ("cat", "two-partitions", "-n", "1"),
        ("cat", "two-partitions", "-n", "1", "--sort", "time"),
        ("sql", "select date_trunc('hour', timestamp), count(*) from transactions where timestamp > '2020-01-01' group by 1"),
    ],
)
def test_a_command_loads_neither_numpy_nor_pandas(command: tuple[str, ...]) -> None:
    """pyarrow imports both where they are installed, which takes longer than most commands."""
    name, *rest = command
    called = [sys.executable, "-c", ANSWERED, name, str(ROOT / "tests/golden/kafka-3.9.1/log"), *rest]
    done = subprocess.run(called, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "['pyarrow']"), done.stderr
