"""A log that is opened again as it grows: what it takes over from its last opening is what it would have found itself."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.sources.logs import LogBuilder
from tests.sources.test_property import steps
from tidelog.reader.log import Log

looks = st.fixed_dictionaries({"kind": st.just("look"), "below": st.one_of(st.none(), st.integers(0, 6))})


@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(steps(), looks), max_size=25))
def test_transactions_are_those_of_a_fresh_opening(happened: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        builder = LogBuilder(Path(folder), segment_bytes=600)
        before: Log | None = None
        mark = 0
        for step in [*happened, {"kind": "look", "below": None}]:
            kind, arguments = step["kind"], {name: value for name, value in step.items() if name != "kind"}
            if kind == "roll":
                if builder.next_offset > max(int(path.stem) for path in builder.logs()):
                    builder.roll()
            elif kind == "end":
                if arguments["producer_id"] in builder.open:
                    builder.end_transaction(**arguments)
            elif kind != "look":
                builder.append(**arguments)
            else:
                below = step["below"]
                # A high watermark never goes back.
                mark = max(mark, builder.next_offset - below) if below is not None else mark
                given_mark = None if below is None else mark
                followed, fresh = (Log.open(builder.directory, high_watermark=given_mark) for _ in range(2))
                if before is not None:
                    followed.go_on_from(before)
                assert followed.last_stable_offset == fresh.last_stable_offset
                ends = range(0, builder.next_offset + 1, max(1, builder.next_offset // 4))
                for start, end in [(a, b) for a in ends for b in ends if a < b]:
                    assert followed.aborted_transactions(start, end) == fresh.aborted_transactions(start, end)
                before = followed
                fresh.close()
                followed.close()
        builder.close()
