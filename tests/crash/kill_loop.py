"""Kills a writing process, again and again, and looks at what it left: nothing acknowledged may be missing.

    python -m tests.crash.kill_loop FOLDER [--kills 300] [--seed 1]

Each round forks a writer, which opens the data folder (so it recovers what the last round left), appends, rolls, flushes,
checkpoints, sometimes stops cleanly, and acknowledges each append through a pipe. The parent kills it (SIGKILL) after some
acknowledgements, or after some milliseconds, which hits it in the middle of a recovery or a start as well. Then the parent opens
the folder itself and compares.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import struct
import sys
import time
from pathlib import Path

from tests.crash.history import Writer, check_time_search, numbers_of, read_all
from tests.patience import PATIENCE_S
from tidelog.clock import SystemClock
from tidelog.storage.log_manager import LogManager

PARTITIONS = 2
_ACK = struct.Struct(">iqqq")
_PROPERTIES = {"segment.bytes": 3000, "index.interval.bytes": 200, "segment.index.bytes": 400, "retention.ms": -1}
_MANAGER = {
    "log.initial.task.delay.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 5,
    "log.flush.start.offset.checkpoint.interval.ms": 5,
    "replica.high.watermark.checkpoint.interval.ms": 5,
}


def write_until_killed(folder: Path, seed: int, acknowledge: int, numbers: list[int]) -> None:
    """The writer: goes on until it is killed, or for a while, and then stops cleanly."""
    rng = random.Random(seed)
    writers = [Writer(p, rng, next_number=number) for p, number in enumerate(numbers)]
    for _ in range(3):
        with LogManager(folder, SystemClock(), properties=_MANAGER) as manager:
            for writer in writers:
                entry = manager.log("t", writer.partition).producer_state
                writer.sequences = {pid: entry.last_entry(pid).last_sequence + 1 for pid in entry.active_producers}
                writer.open_transactions = {
                    pid for pid in writer.sequences if entry.last_entry(pid).current_txn_first_offset is not None
                }
            for _ in range(rng.randint(1, 150)):
                writer = rng.choice(writers)
                log = manager.log("t", writer.partition)
                first_offset, last_offset, number = writer.append(log)
                os.write(acknowledge, _ACK.pack(writer.partition, first_offset, last_offset, number))
                log.update_high_watermark(log.log_end_offset)
                choice = rng.random()
                if choice < 0.02:
                    log.flush()
                elif choice < 0.3:
                    manager.tick()


def run(folder: Path, kills: int, seed: int, *, show_progress: bool = False) -> dict[str, int]:
    """Do `kills` rounds; return counts. Raises AssertionError for the first thing that is not as it must be."""
    rng = random.Random(seed)
    with LogManager(folder, SystemClock(), properties=_MANAGER) as manager:
        manager.create_topic("t", PARTITIONS, _PROPERTIES)
    acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
    counts = {"kills": 0, "clean": 0, "records": 0, "unacknowledged": 0}
    for turn in range(kills):
        numbers = [max(known.values(), default=-1) + 1 for known in acknowledged]
        killed, acks = _one_round(folder, rng, numbers)
        counts["kills" if killed else "clean"] += 1
        for partition, first_offset, last_offset, number in acks:
            for offset in range(first_offset, last_offset + 1):
                acknowledged[partition][offset] = -1 if number < 0 else number + offset - first_offset
        with LogManager(folder, SystemClock(), properties=_MANAGER) as manager:
            assert not manager.offline_partitions()
            for partition, known in enumerate(acknowledged):
                log = manager.log("t", partition)
                records = read_all(log)
                found = numbers_of(records, partition)
                missing = {offset: number for offset, number in known.items() if found.get(offset) != number}
                assert not missing, f"round {turn}, partition {partition}: acknowledged, but not there: {missing}"
                counts["unacknowledged"] += len(found) - len(known)
                acknowledged[partition] = found
                written = [number for _, number in sorted(found.items()) if number >= 0]
                assert written == list(range(len(written))), "records doubled or out of order"
                if turn % 5 == 0:
                    check_time_search(log, records, rng)
            if rng.random() < 0.5:
                _leave_unclean(manager)
        if show_progress and sys.stderr.isatty():
            print(f"\r{turn + 1} of {kills}", end="", file=sys.stderr)
    counts["records"] = sum(len(known) for known in acknowledged)
    return counts


def _leave_unclean(manager: LogManager) -> None:
    """End as a crash would: files closed as they are, no mark, old checkpoints."""
    for log in manager.logs.values():
        log.close_handlers()
    manager._started = None
    manager._unlock()


def _one_round(folder: Path, rng: random.Random, numbers: list[int]) -> tuple[bool, list[tuple[int, int, int, int]]]:
    seed = rng.randrange(2**31)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            write_until_killed(folder, seed, writing, numbers)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    wanted = rng.choice((None, rng.randint(1, 60), rng.randint(1, 300)))
    deadline = time.monotonic() + (rng.random() * 0.08 if wanted is None else PATIENCE_S)
    data = b""
    while True:
        ready, _, _ = select.select([reading], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            break
        more = os.read(reading, 1 << 16)
        if not more:
            break
        data += more
        if wanted is not None and len(data) >= wanted * _ACK.size:
            break
    os.kill(pid, signal.SIGKILL)
    while more := os.read(reading, 1 << 16):
        data += more
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0, "the writer failed by itself"
    whole = len(data) // _ACK.size * _ACK.size
    return killed, list(_ACK.iter_unpack(data[:whole]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a writing process again and again; nothing acknowledged may be lost.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts = run(options.folder, options.kills, options.seed, show_progress=True)
    print(f"\n{counts}")


if __name__ == "__main__":
    main()
