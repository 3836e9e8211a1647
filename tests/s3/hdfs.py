"""Hadoop's MiniDFSCluster: a namenode and a datanode in one Java process, fetched by Maven."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from hdfs_native import Client

from tests.kafka.jars import classpath
from tests.kafka.java import JavaProcess

RELEASE = "hadoop-3.4.1"
_PROGRAM = Path(__file__).parent / "HdfsProgram.java"


class HdfsServer:
    """A running HDFS, which keeps its blocks below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        port = self._folder / "port"
        arguments = [self._folder / "hdfs", port]
        output = self._folder / "hdfs.log"
        self._process = JavaProcess(classpath(RELEASE), str(_PROGRAM), arguments, output=output, heap_mb=512)
        self._process.wait_ready(port.exists)
        self.address = f"hdfs://127.0.0.1:{port.read_text()}"
        self.client = Client(self.address)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()  # It keeps nothing that would have to be written.

    def put(self, key: str, data: bytes) -> None:
        """Write a file, in place of an older one."""
        path = Path("/", key)
        self.client.mkdirs(str(path.parent), create_parent=True)
        self.client.delete(str(path))
        with self.client.create(str(path)) as file:
            file.write(data)

    def upload(self, folder: Path, prefix: str) -> str:
        """Write each file below a folder. Returns the prefix's address."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{self.address}/{prefix}"
