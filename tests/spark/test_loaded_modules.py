"""Loaded modules are set aside in the processes that Spark starts, garbage is still collected there, and plans load little."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from tests.spark.golden import log_dir

BEGIN = """
import gc, importlib.util, sys, types, weakref
from tidelog.spark.processes.loaded_modules import set_modules_aside

class Cycle:
    def __init__(self):
        self.itself = self

sys.modules["__main__"].__spec__ = importlib.util.find_spec(sys.argv[1])
gc.disable()
"""

RULES = (
    BEGIN
    + """
before = weakref.ref(Cycle())
set_modules_aside()
first = gc.get_freeze_count()
assert before() is None, "garbage was set aside"
after = weakref.ref(Cycle())
set_modules_aside()
assert gc.get_freeze_count() <= first and after() is not None, "nothing was loaded, so nothing was to be done"
gc.collect()
assert after() is None, "later garbage was kept"
sys.modules["another"] = types.ModuleType("another")
kept = [[] for _ in range(1000)]
set_modules_aside()
assert gc.get_freeze_count() >= first + 1000, "what the new module brought was not set aside"
"""
)

CALLS = (
    BEGIN
    + """
from tidelog.spark.source import TidelogDataSource

source = TidelogDataSource({"path": sys.argv[2], "subscribe": "v2-none-ct"})
counts = [gc.get_freeze_count()]
schema = source.schema()
counts.append(gc.get_freeze_count())
reader = source.reader(schema)
parts = reader.partitions()
counts.append(gc.get_freeze_count())
assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 900
counts.append(gc.get_freeze_count())
source.streamReader(schema).stop()
counts.append(gc.get_freeze_count())
print(*counts)
"""
)

PLANS = """
import sys
from tidelog.spark.source import TidelogDataSource

source = TidelogDataSource({"path": sys.argv[2], "subscribe": "v2-none-ct", "startingOffsets": "earliest"})
schema = source.schema()
source.reader(schema).partitions()
stream = source.streamReader(schema)
stream.prepareForTriggerAvailableNow()
start = stream.initialOffset()
assert stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))
print(*sys.modules)
"""


def run(program: str, main: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, main, log_dir()], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize("main", ["pyspark.daemon", "tidelog.spark.quiet_daemon"])
def test_modules_are_set_aside_and_garbage_is_not(main: str) -> None:
    run(RULES, main)


def test_each_call_of_sparks_sets_aside_what_it_loaded() -> None:
    counts = [int(count) for count in run(CALLS, "pyspark.daemon").split()]
    assert counts[0] == 0
    assert all(later > earlier + 100 for earlier, later in itertools.pairwise(counts[:4])), counts


def test_a_users_program_keeps_its_objects() -> None:
    assert set(run(CALLS, "json").split()) == {"0"}


def test_a_plan_loads_neither_arrows_functions_nor_http() -> None:
    """They take 20 and 10 ms, and only tasks and registries need them."""
    loaded = run(PLANS, "").split()
    assert "tidelog.spark.tasks" in loaded and "tidelog.spark.stream.stream_tasks" in loaded
    assert {"pyarrow.compute", "http.client"}.isdisjoint(loaded)
