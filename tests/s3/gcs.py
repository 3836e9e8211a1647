"""fake-gcs-server, an emulator of Google Cloud Storage, in a process of its own. Go builds it once, which takes minutes.

It ignores conditions (`If-Match`): that an object was replaced shows only by the tag in the answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tests.kafka.jars import JARS, made_once
from tests.kafka.java import free_port, is_listening, wait_until
from tests.patience import PATIENCE_S

RELEASE = "v1.56.1"
BUCKET = "backup"


def why_not() -> str | None:
    """Return why the emulator cannot be run here, None if it can."""
    return None if shutil.which("go") else "not on the PATH: go"


def _build(path: Path) -> None:
    path.mkdir()
    command = ["go", "install", f"github.com/fsouza/fake-gcs-server@{RELEASE}"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "GOBIN": str(path)})


class GcsServer:
    """A running server with one bucket, in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self.port = free_port()
        program = made_once(JARS / f"fake-gcs-server-{RELEASE}", _build) / "fake-gcs-server"
        place = f"127.0.0.1:{self.port}"
        options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory", "-public-host", place]
        with (self._folder / "fake-gcs-server.log").open("wb") as log:
            self._process = subprocess.Popen([program, *options], stdout=log, stderr=log)
        try:
            wait_until(lambda: is_listening(self.port), "fake-gcs-server", PATIENCE_S)
            self._post("/storage/v1/b?project=tests", json.dumps({"name": BUCKET}).encode(), "application/json")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def options(self) -> dict[str, str]:
        """What a client must be told: Tidelog's options for object storage."""
        return {"base_url": f"http://127.0.0.1:{self.port}", "skip_signature": "true"}

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        name = quote(key, safe="")
        self._post(f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", data, "application/octet-stream")

    def upload(self, folder: Path, prefix: str) -> None:
        """Write each file below a folder as an object."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def _post(self, path: str, data: bytes, kind: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": kind}, method="POST")
        urllib.request.urlopen(request).close()
