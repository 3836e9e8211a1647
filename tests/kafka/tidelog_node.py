"""A broker of Tidelog in a cluster whose controllers are Apache Kafka's: a process that can be killed and started again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import orphans
from tests.kafka import outputs
from tests.kafka.clusters import KafkaCluster, KafkaNode
from tests.kafka.java import free_port, wait_until

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
START_S = 600
STOP_S = 150


class TidelogNode:
    """A broker of Tidelog: `tidelog format` once, then `tidelog serve --config server.properties`."""

    def __init__(self, cluster: KafkaCluster, node_id: int, properties: Mapping[str, str] | None = None) -> None:
        """Format the folder of broker `node_id`, unless it is: that of a broker of Kafka's is taken over as it is."""
        self.node_id = node_id
        self.port = free_port()
        self.folder = cluster.folder / f"broker-{node_id}"
        self.data = self.folder / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = self.folder / "tidelog.properties"
        settings = {**cluster.member_properties(node_id, self.port, self.data), **(properties or {})}
        self.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [TIDELOG, "format", "--ignore-formatted", "--cluster-id", cluster.cluster_id, "--config", str(self.config)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self._ready = KafkaNode(cluster.release, self.folder, node_id, self.port, settings, 0).is_ready

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """The process's log output."""
        return (self.folder / "tidelog.out").read_text(errors="replace")

    def start(self, *, waits: bool = True) -> None:
        output = self.folder / "tidelog.out"
        with output.open("ab") as out:
            self.process = subprocess.Popen([TIDELOG, "serve", "--config", str(self.config)], stdout=out, stderr=out)
        orphans.watch(self.process)
        outputs.note(output)
        if waits:
            self.wait()

    def wait(self) -> None:
        wait_until(self._is_ready_or_ended, f"broker {self.node_id}", START_S)

    def _is_ready_or_ended(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            last = self.log[-2000:]
            raise RuntimeError(f"broker {self.node_id} ended with {self.process.returncode}:\n{last}")
        return self._ready()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
        self._end(STOP_S)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
        self._end(STOP_S)

    def _end(self, timeout_s: float) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        try:
            process.wait(timeout_s)
        finally:
            process.kill()
            process.wait()
            orphans.ended(process)
