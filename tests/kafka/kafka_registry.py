"""Apicurio Registry, which keeps its schemas in a topic of Kafka: from Maven, in a process of its own, with Confluent's API."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import orphans
from tests.kafka.jars import FETCH_TIMEOUT_S, JARS, made_once
from tests.kafka.java import free_port, wait_until
from tests.patience import PATIENCE_S

VERSION = "3.3.3"
TOPIC = "_schemas"
_JAVA = 21
_HEAP_MB = 400


def why_no_kafka_registry() -> str | None:
    """Return a readable reason why it cannot run here, None if it can."""
    if shutil.which("mvn") is None:
        return "Apicurio Registry is skipped: Maven (mvn) not found on PATH."
    return None if _java() else f"Apicurio Registry is skipped: no Java {_JAVA} or later found."


@contextlib.contextmanager
def kafka_registry(bootstrap: str, folder: Path) -> Iterator[str]:
    """Yield the URL of its API. It keeps everything in the topic `_schemas`; its output is in `folder`."""
    home, port = made_once(JARS / f"apicurio-registry-{VERSION}", _fetch), free_port()
    environment = {
        **os.environ,
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
        "APICURIO_KAFKASQL_TOPIC": TOPIC,
        "APICURIO_REST_DELETION_ARTIFACT_ENABLED": "true",
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_ENABLED": "false",
    }
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(_java()), f"-Xmx{_HEAP_MB}m", "-jar", str(home / "quarkus-run.jar")]
    with (folder / "registry.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    orphans.watch(process)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def answers() -> bool:
        assert process.poll() is None, (folder / "registry.log").read_text()[-4000:]
        with contextlib.suppress(OSError):
            call(f"{url}/subjects")
            return True
        return False

    try:
        wait_until(answers, "the registry", 3 * PATIENCE_S)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        orphans.ended(process)


def call(url: str, body: object = None, method: str | None = None) -> Any:
    """Send a request, and return the JSON of the answer. Raises OSError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def _java() -> Path | None:
    homes = [Path(os.environ.get("JAVA_HOME") or "/"), *sorted(Path("/usr/lib/jvm").glob("*"))]
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parents[1])
    for home in homes:
        release = home / "release"
        match = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.is_file() else None
        if match and int(match[1]) >= _JAVA and (home / "bin" / "java").is_file():
            return home / "bin" / "java"
    return None


def _fetch(folder: Path) -> None:
    folder.mkdir()
    artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    subprocess.run(command, check=True, capture_output=True, timeout=FETCH_TIMEOUT_S)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
