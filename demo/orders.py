"""The README's example: a morning of orders from four tills, and the orders between 09:00 and 09:15.

    python demo/orders.py [DIR]        # default: demo/out/orders

Writes the topic `orders` through a broker, as tills would: 520 orders between 09:00 and 09:15, about one in two seconds. The
clock of till 3 runs five minutes fast, till 4 loses its connection at 09:05 and sends its buffered orders at 09:20, and till 2 is
once ten years ahead. Then reads the quarter of an hour in two ways: as consumers do, from the first offset at or after 09:00 to
the first offset at or after 09:15, and exactly.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import tidelog

HERE = Path(__file__).resolve().parent
DIR = HERE / "out" / "orders"

DAY_MS = 1_795_046_400_000  # 2026-11-19T00:00Z
MINUTE_MS = 60_000
OPENS_MS, FROM_MS, TO_MS, CLOSES_MS = (
    DAY_MS + minutes * MINUTE_MS for minutes in (510, 540, 555, 585)
)  # 08:30 09:00 09:15 09:45
EVERY_MS = 15 * MINUTE_MS // 520
FAST_MS = 5 * MINUTE_MS  # by which the clock of till 3 is ahead
ASTRAY = 1769  # an order of till 2, at 09:21, dated ten years later
LINE_LOST_MS, LINE_BACK_MS = FROM_MS + 5 * MINUTE_MS, FROM_MS + 20 * MINUTE_MS  # of till 4


def orders() -> list[tuple[int, int, int]]:
    """Return (time of arrival, timestamp, number) of each order, in the order of arrival; times in ms."""
    arrivals = []
    for number, sold_ms in enumerate(range(OPENS_MS, CLOSES_MS, EVERY_MS)):
        till = number % 4 + 1
        timestamp_ms = sold_ms + FAST_MS if till == 3 else sold_ms
        if number == ASTRAY:
            timestamp_ms += 3653 * 24 * 60 * MINUTE_MS
        arrives_ms = LINE_BACK_MS if till == 4 and LINE_LOST_MS <= sold_ms < LINE_BACK_MS else sold_ms
        arrivals.append((arrives_ms, timestamp_ms, number))
    return sorted(arrivals)


def write(data_dir: Path) -> None:
    """Write the topic `orders` into a new data folder, as a shop's broker would have received it."""
    with tidelog.Broker(data_dir) as broker:
        broker.create_topic("orders", segment_bytes=64 * 1024, retention_ms=7 * 24 * 60 * MINUTE_MS)
        for _, timestamp_ms, number in orders():
            till, cups = number % 4 + 1, number * 7 % 5 + 1
            broker.produce("orders", f'{{"order":{number},"cups":{cups}}}', key=f"till {till}", timestamp_ms=timestamp_ms)


def from_to(data_dir: Path) -> tuple[int, int]:
    """Return how many records between 09:00 and 09:15 a read by offsets finds, and how many an exact read does."""
    with tidelog.Broker(data_dir, read_only=True) as broker, tidelog.connect(broker.bootstrap_servers) as client:
        start, end = (client.offsets_for_times({("orders", 0): time_ms})["orders", 0].offset for time_ms in (FROM_MS, TO_MS))
    times = tidelog.scan(data_dir, "orders", start=FROM_MS, end=TO_MS, columns=["offset"]).read_all()["offset"].to_pylist()
    return sum(start <= offset < end for offset in times), len(times)


def main() -> None:
    data_dir = Path(sys.argv[1]) if len(sys.argv) > 1 else DIR
    shutil.rmtree(data_dir, ignore_errors=True)
    write(data_dir)
    by_offsets, exact = from_to(data_dir)
    cut = f"{by_offsets} from the first offset of 09:00 to the first offset of 09:15"
    print(f"orders between 09:00 and 09:15: {cut}, {exact} exactly")


if __name__ == "__main__":
    main()
