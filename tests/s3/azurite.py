"""Azurite, Microsoft's emulator of Azure's Blob Storage, in a process of its own. npm installs it once, which takes minutes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import obstore
from obstore.store import AzureStore

from tests.kafka.jars import JARS, made_once
from tests.kafka.java import free_port, is_listening, wait_until
from tests.patience import PATIENCE_S

RELEASE = "3.34.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that Azurite's documentation gives everybody."""
CONTAINER = "backup"
_VERSION = "2021-08-06"


def why_not() -> str | None:
    """Return why Azurite cannot be run here, None if it can."""
    lacking = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"not on the PATH: {', '.join(lacking)}" if lacking else None


def _install(path: Path) -> None:
    path.mkdir()
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(path), f"azurite@{RELEASE}"]
    subprocess.run(command, check=True, capture_output=True)


class AzuriteServer:
    """A running server with one container, in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self.port = free_port()
        script = made_once(JARS / f"azurite-{RELEASE}", _install) / "node_modules/azurite/dist/src/blob/main.js"
        options = ["--blobPort", str(self.port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        with (self._folder / "azurite.log").open("wb") as log:
            self._process = subprocess.Popen(["node", str(script), *options], stdout=log, stderr=log)
        try:
            wait_until(lambda: is_listening(self.port), "Azurite", PATIENCE_S)
            self._make_container()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.store = AzureStore(CONTAINER, client_options={"allow_http": True}, **self.options)  # type: ignore[arg-type]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def options(self) -> dict[str, str]:
        """What a client must be told: Tidelog's options for object storage."""
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}"}

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        obstore.put(self.store, key, data, use_multipart=False)

    def upload(self, folder: Path, prefix: str) -> None:
        """Write each file below a folder as an object."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def _make_container(self) -> None:
        """Make the container, by a request that is signed with the account's key."""
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        what = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n{what}"
        signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        }
        url = f"http://127.0.0.1:{self.port}/{ACCOUNT}/{CONTAINER}?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()
