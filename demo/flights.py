"""`make demo`: the flights of 2013 as a Kafka log, read by time.

Imports 336,776 real flights into a Kafka data folder, finds a moment, reads one day exactly, serves the folder to Kafka
clients, replays the last three days on Spark, as a batch and as a stream, and draws the segments. Everything is written to
demo/out; the demo runs exactly the commands that it shows.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
OUT = HERE / "out"
LOG = OUT / "log"
COPY = OUT / "replayed"
TIDELOG = Path(sys.executable).with_name("tidelog")

DAY_START, DAY_END = "2013-07-10T00:00-04:00", "2013-07-11T00:00-04:00"  # 10 July on New York's clock
START_MS, END_MS = 1_373_428_800_000, 1_373_515_200_000


def main() -> None:
    began = time.perf_counter()
    shutil.rmtree(OUT, ignore_errors=True)
    from demo.data import write_parquet

    title("The flights, in scheduled order")
    departures, cancellations = write_parquet(OUT)
    say(f"wrote {name(departures)} and {name(cancellations)}")

    title("Import: key = carrier, value = the row as JSON, timestamp = the actual departure")
    common = "--key carrier --segment-bytes 100000 --codec lz4 --config retention.ms=-1"
    tidelog(f"import {name(LOG)} departures {name(departures)} --timestamp departed --partitions 4 {common}")
    tidelog(f"import {name(LOG)} one-partition {name(departures)} --timestamp departed {common}")
    tidelog(f"import {name(LOG)} cancellations {name(cancellations)} --timestamp scheduled {common}")
    tidelog(f"stat {name(LOG)} departures", first=6)

    title("Find a time: where is 9:00 in New York on 10 July?")
    tidelog(f"find {name(LOG)} one-partition --at 2013-07-10T09:00-04:00 --explain", first=3, last=9)

    title("Read that day exactly")
    tidelog(f"cat {name(LOG)} one-partition --from {DAY_START} --to {DAY_END} --format jsonl", first=3)
    lost_records()

    title("Serve the folder to Kafka clients, and query it over the network")
    serve()

    title("Replay the last three days on Spark")
    replay()
    tidelog(f"stat {name(COPY)} departures", first=6)

    title("Draw the segments on a time axis")
    picture = draw_segments()
    say(f"open {name(picture)}")
    say(f"\ntotal time {time.perf_counter() - began:.0f} s; the log is in {name(LOG)}")


def lost_records() -> None:
    """Count what a cut by offset (first offset >= start .. first offset >= end) would have lost of the day."""
    import pyarrow.compute as pc

    import tidelog

    for topic in ("one-partition", "departures"):
        day = tidelog.scan(LOG, topic, start=START_MS, end=END_MS, columns=["partition", "offset"]).read_all()
        found = subprocess.run(
            [TIDELOG, "find", LOG, topic, "--at", str(END_MS), "--json"], check=True, capture_output=True, text=True
        )
        ends = {line["partition"]: line["offset"] for line in map(json.loads, found.stdout.splitlines())}
        lost = 0
        for partition, end in ends.items():
            offsets = day.filter(pc.equal(day["partition"], partition))["offset"]
            lost += 0 if end < 0 else pc.sum(pc.greater_equal(offsets, end)).as_py() or 0
        say(f"{topic:14} {day.num_rows} flights left on 10 July; a cut at the first offset >= end loses {lost} of them")


def serve() -> None:
    """Start a broker on the log's folder, and use a Kafka client to find the offset where that day begins and to read the
    records there.
    """
    import tidelog

    with tidelog.Broker(LOG) as broker, tidelog.connect(broker.bootstrap_servers) as client:
        say(f"a broker on {name(LOG)}: any Kafka client can read it at {broker.bootstrap_servers} now")
        places = [("departures", partition) for partition in range(4)]
        for (topic, partition), found in client.offsets_for_times(dict.fromkeys(places, DAY_START)).items():
            say(f"  {topic}-{partition}: the first flight of 10 July is at offset {found.offset if found else 'none'}")
        client.produce("departures", b'{"carrier":"XX"}', key=b"XX", timestamp=END_MS)
        (late,) = [r for r in client.read("departures", from_time=END_MS, to_time=END_MS + 1) if r.key == b"XX"]
        place = f"departures-{late.partition}, offset {late.offset}"
        say(f"produced one more record, and found it by its time: {place}, {late.value.decode()}")


def replay() -> None:
    """Run demo/replay.py; Spark's own output goes to a file."""
    chatter = OUT / "spark.log"
    say("starting Spark ...")
    with chatter.open("w") as stderr:
        done = subprocess.run([sys.executable, HERE / "replay.py", LOG, COPY], stderr=stderr, check=False)
    if done.returncode:
        raise SystemExit(f"the replay failed:\n{chatter.read_text()[-4000:]}")


def draw_segments() -> Path:
    """Draw the one-partition topic; return the picture's path."""
    import numpy as np

    import tidelog
    from demo.draw import draw
    from tidelog.reader import LogDir

    table = tidelog.scan(LOG, "one-partition", columns=["offset", "timestamp"]).read_all()
    bases = [segment.base_offset for segment in LogDir(LOG).log("one-partition", 0).segments]
    picture = OUT / "segments.png"
    timestamps = table["timestamp"].cast("int64").to_numpy()
    draw(np.asarray(table["offset"]), timestamps, bases, START_MS, END_MS, picture)
    return picture


def tidelog(command: str, first: int = 99, last: int = 0) -> None:
    """Run one command as a user would, and print it with its output; of a long output print only the `first` and `last` lines."""
    say(f"$ tidelog {command}")
    done = subprocess.run([TIDELOG, *shlex.split(command)], capture_output=True, text=True, check=False, cwd=Path.cwd())
    lines = done.stdout.splitlines()
    for line in done.stderr.splitlines():
        say(f"  {line}")
    left_out = len(lines) - first - last
    shown = lines if left_out <= 0 else [*lines[:first], f"... {left_out:,} more lines ...", *lines[len(lines) - last :]]
    for line in shown:
        say(f"  {line if len(line) <= 160 else line[:157] + '...'}")
    if done.returncode:
        raise SystemExit(f"tidelog {command.split()[0]} failed with exit code {done.returncode}")


def name(path: Path) -> str:
    """Return `path` relative to the folder in which the demo was started."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def title(text: str) -> None:
    say(f"\n── {text} " + "─" * max(0, 96 - len(text)))


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
