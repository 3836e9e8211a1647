"""The jars of an Apache Kafka release, fetched once by Maven into `~/.cache/tidelog-tests`, which all checkouts share.

A release is what `poms/<release>.xml` says, and its folder's name has the checksum of that file. A folder is complete when it has
a file `.complete`; anything else is fetched again into a folder beside it, which then takes its place.
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
JARS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog-tests"
"""What is slow to get, and depends on nothing that its name does not say."""
MADE = HERE / "jars"
"""What belongs to this checkout (ignored by git)."""
FETCH_TIMEOUT_S = 900
FETCH_TRIES = 3


def why_not() -> str | None:
    """Return a readable reason why real Kafka cannot run here, None if it can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if not missing:
        return None
    names = {"java": "Java (java)", "mvn": "Maven (mvn)"}
    return f"Tests against real Apache Kafka are skipped: {' and '.join(names[tool] for tool in missing)} not found on PATH."


def jars(release: str) -> Path:
    """Return the folder with the jars of a Kafka release ("3.9.1", "2.4.1"); the first call fetches them."""
    pom = HERE / "poms" / f"{release}.xml"
    folder = JARS / f"{release}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    complete = folder / ".complete"
    if not complete.exists():
        with _only_one(folder):
            if not complete.exists():
                _fetch(release, pom, folder)
    return folder


def classpath(release: str) -> str:
    """Return the Java class path of a Kafka release."""
    return str(jars(release) / "*")


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Return a path, at which `make` created a file in this or an earlier process."""
    if not path.exists():
        with _only_one(path):
            if not path.exists():
                fresh = path.with_name(f".{path.name}.{os.getpid()}")
                make(fresh)
                fresh.rename(path)
    return path


def class_archive(folder: Path) -> Path:
    """Return the path of the class data sharing archive for a release's broker on this machine's Java."""
    java = Path(shutil.which("java") or "java").resolve()
    mark = hashlib.sha256(f"{java} {java.stat().st_mtime_ns} {(folder / '.complete').stat().st_mtime_ns}".encode())
    return JARS / f"{folder.name}-{mark.hexdigest()[:16]}.jsa"


def _fetch(release: str, pom: Path, folder: Path) -> None:
    began = time.monotonic()
    print(f"fetching Apache Kafka {release} by Maven ...", file=sys.stderr, flush=True)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    try:
        for tries_left in reversed(range(FETCH_TRIES)):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=FETCH_TIMEOUT_S, check=False
            )
            if done.returncode == 0:
                break
            if not tries_left:
                raise RuntimeError(f"Maven could not fetch Apache Kafka {release}:\n{done.stdout[-4000:]}")
        (fresh / ".complete").touch()
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    found = list(folder.glob("*.jar"))
    size_mb = sum(jar.stat().st_size for jar in found) / 1e6
    print(f"  {len(found)} jars, {size_mb:.0f} MB, {time.monotonic() - began:.0f} s: {folder}", file=sys.stderr, flush=True)


def main() -> None:
    """Fetch all releases, where that is possible: `.ci/run` does so before the tests, while it waits for other downloads."""
    for pom in sorted((HERE / "poms").glob("*.xml")) if why_not() is None else ():
        try:
            jars(pom.stem)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr, flush=True)  # The first test that needs it tries again, and fails.


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock beside a path, so that two test runs do not make it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
