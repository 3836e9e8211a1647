"""A schema registry in a process of its own: franz-go's, started by Go, with or without credentials and TLS."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.kafka.jars import JARS, made_once

_FOLDER = Path(__file__).parent / "go_registry"


def why_no_registry() -> str | None:
    """Return a readable reason why it cannot run here, None if it can."""
    return None if shutil.which("go") else "The schema registry of tests is skipped: Go (go) not found on PATH."


@contextlib.contextmanager
def schema_registry(
    user_info: str | None = None, *, bearer: str | None = None, certificate: Path | None = None, clients: Path | None = None
) -> Iterator[str]:
    """Yield its URL. `user_info` is `user:password`; `bearer` is a token; `certificate` has a certificate and its key;
    `clients` is the CA of clients' certificates, which they must then have.
    """
    mark = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(_FOLDER.iterdir()))).hexdigest()[:16]
    program = made_once(JARS / f"go-registry-{mark}", _build)
    options = [] if user_info is None else ["-auth", f"Basic {base64.b64encode(user_info.encode()).decode()}"]
    if bearer is not None:
        options = ["-auth", f"Bearer {bearer}"]
    if certificate is not None:
        options += ["-cert", str(certificate), "-key", str(certificate)]
    if clients is not None:
        options += ["-clients", str(clients)]
    process = subprocess.Popen([program, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def _build(path: Path) -> None:
    subprocess.run(["go", "build", "-o", path, "."], cwd=_FOLDER, check=True, capture_output=True)
