"""The jars of an Apache Kafka release, fetched once by Maven into `tests/kafka/jars/<release>` (ignored by git).

A release is what `poms/<release>.xml` says. A folder is complete when its `.complete` holds the checksum of that file; anything
else is fetched again into a folder beside it, which then takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
JARS = HERE / "jars"
FETCH_TIMEOUT_S = 900


def why_not() -> str | None:
    """Return a readable reason why real Kafka cannot run here, None if it can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if not missing:
        return None
    names = {"java": "Java (java)", "mvn": "Maven (mvn)"}
    return f"Tests against real Apache Kafka are skipped: {' and '.join(names[tool] for tool in missing)} not found on PATH."


def classpath(release: str) -> str:
    """Return the Java class path of a Kafka release ("3.9.1", "2.4.1"); the first call fetches its jars."""
    pom = HERE / "poms" / f"{release}.xml"
    folder = JARS / release
    mark = hashlib.sha256(pom.read_bytes()).hexdigest()
    complete = folder / ".complete"
    if not (complete.exists() and complete.read_text() == mark):
        JARS.mkdir(exist_ok=True)
        with _only_one(JARS / f".{release}.lock"):
            if not (complete.exists() and complete.read_text() == mark):
                _fetch(release, pom, folder, mark)
    return str(folder / "*")


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return what `make` created at a path next to the jars, in this or an earlier process."""
    path = JARS / name
    if not path.exists():
        JARS.mkdir(exist_ok=True)
        with _only_one(JARS / f".{name}.lock"):
            if not path.exists():
                fresh = path.with_name(f".{name}.{os.getpid()}")
                make(fresh)
                fresh.rename(path)
    return path


def class_archive(release: str) -> Path:
    """Return the path of the class data sharing archive for a release's broker on this machine's Java."""
    classpath(release)  # Its mark says which jars the archive is of.
    java = Path(shutil.which("java") or "java").resolve()
    mark = hashlib.sha256(f"{java} {java.stat().st_mtime_ns} {(JARS / release / '.complete').stat().st_mtime_ns}".encode())
    return JARS / f"{release}-{mark.hexdigest()[:16]}.jsa"


def _fetch(release: str, pom: Path, folder: Path, mark: str) -> None:
    began = time.monotonic()
    print(f"fetching Apache Kafka {release} by Maven ...", file=sys.stderr, flush=True)
    fresh = folder.with_name(f".{release}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"Maven could not fetch Apache Kafka {release}:\n{done.stdout[-4000:]}")
        (fresh / ".complete").write_text(mark)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    jars = list(folder.glob("*.jar"))
    size_mb = sum(jar.stat().st_size for jar in jars) / 1e6
    print(f"  {len(jars)} jars, {size_mb:.0f} MB, {time.monotonic() - began:.0f} s: {folder}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two test runs do not fetch into one folder."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
