"""S3Proxy in a process of its own, and the proxy before it that clients are given (`Front`)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import obstore
from obstore.store import S3Store

from tests.kafka.jars import classpath
from tests.kafka.java import JavaProcess, free_port, is_listening
from tests.s3.front import Front

RELEASE = "s3proxy-3.0.0"
ACCESS_KEY, SECRET_KEY, REGION = "access-of-tests", "secret-of-tests", "us-east-1"
BUCKET = "backup"

_LOGBACK = Path(__file__).parent / "logback.xml"
_PROPERTIES = f"""
s3proxy.authorization=aws-v2-or-v4
s3proxy.endpoint=http://127.0.0.1:{{port}}
s3proxy.identity={ACCESS_KEY}
s3proxy.credential={SECRET_KEY}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.identity=unused
jclouds.credential=unused
jclouds.filesystem.basedir={{folder}}
"""


class S3Server:
    """A running server with one bucket, which keeps objects below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self.objects = self._folder / "objects"
        (self.objects / BUCKET).mkdir(parents=True)
        self.port = free_port()
        self._properties = self._folder / "s3proxy.properties"
        self._properties.write_text(_PROPERTIES.format(port=self.port, folder=self.objects))
        self.start()
        self.front = Front(self.port)
        self.store = self._store()
        return self

    def start(self) -> None:
        """Start it, at first or after `kill`."""
        self._process = JavaProcess(
            classpath(RELEASE),
            "org.gaul.s3proxy.Main",
            ["--properties", self._properties],
            output=self._folder / "s3proxy.log",
            heap_mb=256,
            options=[f"-Dlogback.configurationFile={_LOGBACK}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        )
        self._process.wait_ready(lambda: is_listening(self.port))

    def kill(self) -> None:
        """Kill it; the objects stay."""
        self._process.kill()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.front.close()
        self.kill()  # It keeps nothing that would have to be written.

    @property
    def options(self) -> dict[str, str]:
        """What a client must be told: Tidelog's options for object storage."""
        return {
            "endpoint_url": self.front.url,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": REGION,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same as environment variables, as AWS's tools have them."""
        return {f"AWS_{name.upper()}": value for name, value in self.options.items()}

    def url(self, prefix: str = "") -> str:
        return f"s3://{BUCKET}/{prefix}".rstrip("/")

    def put(self, key: str, data: bytes) -> None:
        """Write an object; the request is not counted."""
        obstore.put(self.store, key, data, use_multipart=False)

    def delete(self, key: str) -> None:
        obstore.delete(self.store, key)

    def upload(self, folder: Path, prefix: str) -> str:
        """Write each file below a folder as an object, as a backup does. Returns the prefix's address."""
        files = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda file: self.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes()), files))
        return self.url(prefix)

    def _store(self) -> S3Store:
        return S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region=REGION,
            client_options={"allow_http": True},
        )
