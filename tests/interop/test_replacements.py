"""Each moment of a replacement of segments, loaded by Kafka 3.9.1: it makes of it what our readers read, and our start makes."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.interop.test_loading import JUDGE, Case, load_and_close
from tests.kafka.jars import classpath
from tests.kafka.java import run_java
from tests.reader.replacements import REPLACEMENTS, states
from tidelog.formats import names
from tidelog.reader.log import Log
from tidelog.records.batch import iter_headers

PROPERTIES = {"cleanup_policy": "compact", "segment_bytes": 100_000}


def offsets(directory: Path) -> dict[str, list[int]]:
    """The batches of each segment."""
    return {
        path.name: [header.last_offset for header in iter_headers(path.read_bytes())]
        for path in sorted(directory.glob(f"*{names.LOG_SUFFIX}"))
    }


def test_kafka_makes_the_same_of_each_state(tmp_path: Path) -> None:
    asked = []
    for number, one in enumerate(REPLACEMENTS):
        data = tmp_path / f"{number}"
        for state in states(one, data):
            theirs, ours = (tmp_path / f"{number}-{state.step}-{whose}" / "t-0" for whose in ("kafkas", "ours"))
            for place in (theirs, ours):
                shutil.copytree(data / "t-0", place)
            with Log.open(ours) as log:
                read = [header.last_offset for header in log.headers(check_crc=True)]
            case = Case(state.step, PROPERTIES, False, max(one.old), 0, max(one.rows_before) + 1, [])
            asked.append((state, read, case, theirs, ours))
    questions, verdicts = tmp_path / "questions", tmp_path / "verdicts"
    questions.write_text("".join(case.question(theirs) for _, _, case, theirs, _ in asked))
    run_java(classpath("3.9.1"), str(JUDGE), [questions, verdicts], heap_mb=512)
    lines = verdicts.read_text().splitlines()
    assert len(lines) == len(asked) > 100
    for (state, read, case, theirs, ours), line in zip(asked, lines, strict=True):
        assert not line.startswith("error"), (state, line)
        found = offsets(theirs)
        assert [offset for segment in found.values() for offset in segment] == read, state
        assert load_and_close(case, ours) == line, state
        assert offsets(ours) == found, state
        indexes = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)
        there = [{path.name: path.read_bytes() for path in place.iterdir() if path.suffix in indexes} for place in (theirs, ours)]
        assert there[0] == there[1], state
