"""An engine that writes the topics of `engine_topics` and then ends, or continues until it is killed.

As a program it writes a folder, then appends to one more topic and prints each append until it is killed.
"""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.history import Writer
from tests.interop.engine_topics import BASE, FORMATS, HOUR_MS, Filler, Sent, Topic, topics
from tests.interop.seen import Seen, see
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock, SystemClock
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producers.producer_ids import ProducerIds

BUSY = "busy"
"""The topic to which a writer appends when it is killed."""
APPENDS_BEFORE_KILL = 200


@dataclass
class Written:
    """What the engine serves of each topic once it has written it, and its producers' last batches by topic."""

    seen: dict[str, Seen] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)


def write_and_close(folder: Path, release: str) -> Written:
    """Write the topics and end cleanly."""
    clock = ManualClock(SystemClock().now_ms())
    manager = start(folder, clock)
    written = write_topics(manager, clock, topics(release))
    assert manager.shutdown()
    return written


class KilledWriter:
    """A process that writes the topics, `prefix` before their names, and is killed while it appends to `BUSY`."""

    def __init__(self, folder: Path, release: str, prefix: str) -> None:
        self._result = folder.with_suffix(".pickle")
        command = [sys.executable, "-m", __name__, folder, release, prefix, self._result]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def kill(self) -> tuple[Written, dict[int, int]]:
        """Kill it after enough appends. Return what it wrote before, and its acknowledged appends to `BUSY`."""
        with self._process as process:
            assert process.stdout is not None
            lines = []
            while len(lines) < APPENDS_BEFORE_KILL and (line := process.stdout.readline()):
                lines.append(line)
            process.kill()
            lines += process.stdout.readlines()
        assert len(lines) >= APPENDS_BEFORE_KILL
        return Written(*pickle.loads(self._result.read_bytes())), read_acknowledged(lines)


def start(folder: Path, clock: ManualClock) -> LogManager:
    manager = LogManager(folder, clock, properties={"log.cleaner.dedupe.buffer.size": 2 << 20})
    manager.startup()
    return manager


def write_topics(manager: LogManager, clock: ManualClock, chosen: dict[str, Topic], prefix: str = "") -> Written:
    """Create and fill the topics, `prefix` before their names, and look at what the engine serves of them."""
    written = Written()
    begin_ms = SystemClock().now_ms() - HOUR_MS
    ids = ProducerIds(manager.metadata)
    for turn, (bare_name, topic) in enumerate(chosen.items()):
        name = prefix + bare_name
        clock.advance(begin_ms - clock.now_ms())
        manager.create_topic(name, 1, topic.settings)
        filler = Filler(manager.log(name, 0), clock, ids, begin_ms)
        topic.write(filler)
        filler.all_replicated()
        if filler.sent is not None:
            written.sent[name] = filler.sent
        if turn == len(chosen) // 2:
            # Recovery after a crash starts at the flushed offset of these, and at the start of the others.
            manager.tick()
            manager.checkpoint_recovery_points()
            manager.checkpoint_high_watermarks()
    manager.checkpoint_log_start_offsets()
    if manager.cleaner is not None:
        while manager.cleaner.clean_filthiest_log():
            pass
    manager.tick()
    for bare_name, topic in chosen.items():
        written.seen[prefix + bare_name] = see(manager.log(prefix + bare_name, 0), topic.targets, without=topic.unknown)
    return written


def write_until_killed(folder: Path, release: str, prefix: str, result: Path) -> None:
    """Write the topics, put down what they are (pickled), then go on; print each append's first and last offset and number."""
    clock = ManualClock(SystemClock().now_ms())
    manager = start(folder, clock)
    written = write_topics(manager, clock, topics(release), prefix)
    busy = f"{prefix}{BUSY}"
    manager.create_topic(busy, 1, BASE | {"message.format.version": FORMATS[2]})
    result.write_bytes(pickle.dumps((written.seen, written.sent)))
    log, writer = manager.log(busy, 0), Writer(0, random.Random(busy))
    end = time.monotonic() + 2 * PATIENCE_S  # It is killed much earlier, unless who should do so has died.
    while time.monotonic() < end:
        print(*writer.append(log), flush=True)


def read_acknowledged(lines: Iterable[str]) -> dict[int, int]:
    """Return what a killed writer said: numbers by offset, -1 for markers. The last line may be cut off."""
    found = {}
    for line in lines:
        if not line.endswith("\n"):
            break
        first_offset, last_offset, number = map(int, line.split())
        for offset in range(first_offset, last_offset + 1):
            found[offset] = -1 if number < 0 else number + offset - first_offset
    return found


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
