"""A worker's memory is not cleared for each batch again, and what it keeps is bounded."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tidelog.spark.processes.kept_memory import KEPT_BYTES

PAGE_BYTES = 4096
COLUMN_BYTES = 8 << 20
BATCHES = 20

PROGRAM = f"""
import importlib.util, resource, sys
from pathlib import Path
from tidelog.spark.processes.kept_memory import keep_memory

sys.modules["__main__"].__spec__ = importlib.util.find_spec(sys.argv[1])
keep_memory()

def batch(columns):
    return [b"x" * {COLUMN_BYTES} for _ in range(columns)]

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

batch(4)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({BATCHES}):
    batch(4)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
small = resident_bytes()
batch(40)
print(faults, resident_bytes() - small)
"""


def run(main: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, main], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    faults, kept_bytes = done.stdout.split()
    return int(faults), int(kept_bytes)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_workers_keep_the_memory_of_a_batch_and_programs_do_not() -> None:
    cleared = BATCHES * 4 * COLUMN_BYTES // PAGE_BYTES
    kept, kept_bytes = run("pyspark.daemon")
    assert kept < cleared // 20
    assert kept_bytes < 2 * KEPT_BYTES
    returned, _ = run("json")
    assert returned > kept
