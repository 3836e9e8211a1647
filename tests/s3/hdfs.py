"""Hadoop's MiniDFSCluster: a namenode and a datanode in one Java process, fetched by Maven."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.jars import classpath
from tests.kafka.java import JavaProcess, run_java

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
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()  # It keeps nothing that would have to be written.

    def put(self, key: str, data: bytes) -> None:
        """Write a file, in place of an older one."""
        local = self._folder / "local"
        local.write_bytes(data)
        self._copy(local, key)

    def upload(self, folder: Path, prefix: str) -> str:
        """Write each file below a folder. Returns the prefix's address."""
        self._copy(folder, prefix)
        return f"{self.address}/{prefix}"

    def _copy(self, local: Path, key: str) -> None:
        """By Hadoop's client: hdfs-native's waits half a second for each file."""
        run_java(classpath(RELEASE), str(_PROGRAM), [self.address, local, f"/{key}"])
