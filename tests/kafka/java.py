"""Java processes: long-running ones (a broker), which are monitored and stopped, and short ones (a tool), which run to
completion.

Every process that is started here is also ended here, by its own handle: by its context manager, else at the interpreter's exit,
else (see `orphans`) when the interpreter has been killed.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests import orphans
from tests.kafka import outputs
from tests.kafka.jars import JARS, class_archive, made_once

START_TIMEOUT_S = 280
STOP_TIMEOUT_S = 120
POLL_S = 0.05

# Below the range that Linux gives to outgoing connections, so that none of those can hold a port when its broker starts again.
# Workers of one run have ports of their own: one that was given away, or whose broker starts again, looks free to all others.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = range(20000 + _WORKER, 32000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
_chance = random.SystemRandom()
"""Not of `random`: Hypothesis seeds that, and all processes would try the same ports in the same order."""

_given: set[int] = set()
"""Ports that were returned before; their users may not listen on them yet."""

_LOG4J = Path(__file__).parent / "log4j.properties"


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free and was not returned before."""
    for _ in range(200):
        port = _chance.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
    raise RuntimeError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def is_listening(port: int) -> bool:
    """Return whether a process accepts connections at `port` of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Poll until `condition()` holds; TimeoutError, naming `what`, when it does not in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(POLL_S)


def end_input(process: subprocess.Popen[Any]) -> None:
    """Stop a program by closing its input. If it does not end, kill it and raise subprocess.TimeoutExpired."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()


def java_command(
    classpath: str, main: str, arguments: Sequence[str | os.PathLike[str]], *, heap_mb: int, options: Sequence[str] = ()
) -> list[str]:
    if main.endswith(".java"):
        classpath, main = os.pathsep.join(filter(None, (classpath, str(compiled(Path(main), classpath))))), Path(main).stem
    flags = [
        f"-Xmx{heap_mb}m",
        f"-Xms{min(heap_mb, 64)}m",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j.configuration={_LOG4J.as_uri()}",
        *options,
    ]
    return ["java", *flags, "-cp", classpath, main, *(os.fspath(argument) for argument in arguments)]


def compiled(source: Path, classpath: str) -> Path:
    """Return a jar of a program of ours, compiled once: `java` compiles one at each start, which takes four times as long."""
    java = Path(shutil.which("java") or "java").resolve()
    parts = (source.read_bytes(), classpath.encode(), str(java).encode(), str(java.stat().st_mtime_ns).encode())
    mark = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="classes-") as folder:
            jars = os.pathsep.join(map(str, Path(classpath).parent.glob("*.jar"))) if classpath else folder
            compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-proc:none", "-d", folder, "-cp", jars]
            subprocess.run([*compiler, str(source)], check=True, capture_output=True)
            with zipfile.ZipFile(path, "w") as jar:
                for found in sorted(Path(folder).rglob("*.class")):
                    jar.write(found, found.relative_to(folder))

    return made_once(JARS / f"{source.stem}-{mark}.jar", make)


def shared_classes(classpath: str) -> list[str]:
    """Return the flags with which a JVM maps the classes that a broker has left; to read and check them is half of its start."""
    folder = Path(classpath).parent
    if not (classpath and folder.parent == JARS):
        return []
    archive = class_archive(folder)
    # An archive that does not suit is left alone, in silence: what a tool prints is judged.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"] if archive.exists() else []


def run_java(
    classpath: str,
    main: str,
    arguments: Sequence[str | os.PathLike[str]],
    *,
    heap_mb: int = 256,
    timeout_s: float = 600,
    check: bool = True,
    stdin: str | None = None,
) -> str:
    """Run a Java program to completion and return its output (both streams). Raises RuntimeError if it fails and `check` is set.

    `stdin` is its standard input, empty by default.
    """
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *shared_classes(classpath)]
    command = java_command(classpath, main, arguments, heap_mb=heap_mb, options=options)
    done = subprocess.run(
        command, input=stdin or "", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{main} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class JavaProcess:
    """A Java program that runs until it is stopped. Its output goes to `output` (appended)."""

    def __init__(
        self,
        classpath: str,
        main: str,
        arguments: Sequence[str | os.PathLike[str]],
        *,
        output: Path,
        heap_mb: int,
        options: Sequence[str] = (),
        has_session: bool = True,
    ) -> None:
        self.main = main
        self.output = output
        options = [*options, *shared_classes(classpath)]
        command = java_command(classpath, main, arguments, heap_mb=heap_mb, options=options)
        with output.open("ab") as sink:
            # A session, or at least a group of its own: a Ctrl-C in the terminal reaches the test run, which then stops the
            # process in order.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=has_session,
                process_group=None if has_session else 0,
            )
        orphans.watch(self.process)
        outputs.note(output)
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Poll until `ready()`; where the program ends or the time does, kill it and raise with the end of its output."""
        end = time.monotonic() + timeout_s
        while not ready():
            if not self.is_running() or time.monotonic() > end:
                state = "is not ready in time" if self.is_running() else f"ended with {self.process.returncode}"
                self.kill()
                raise RuntimeError(f"{self.main} {state}:\n{self.tail()}")
            time.sleep(POLL_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Send SIGTERM and wait for a clean exit. A program that does not exit in time is killed, which is an error."""
        if self.is_running():
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"{self.main} did not stop within {timeout_s:.0f} s:\n{self.tail()}") from None
        self._ended()

    def kill(self) -> None:
        """Send SIGKILL: like a power failure, as far as the process can tell."""
        if self.is_running():
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
        self._ended()

    def _ended(self) -> None:
        orphans.ended(self.process)
        atexit.unregister(self.kill)

    def tail(self, characters: int = 4000) -> str:
        return self.output.read_text(errors="replace")[-characters:]
