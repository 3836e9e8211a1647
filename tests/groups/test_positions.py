"""Groups of Tidelog's own writers are reported from groups of consumers by what they commit."""

from __future__ import annotations

import pytest

from tidelog.groups.positions import are_positions, is_position, source_position
from tidelog.spark.sink.epochs import Epoch


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (source_position("orders", 3), True),
        (source_position("a-b.c_d", 0), True),
        (Epoch("a-query", 7).to_json(), True),
        ("", False),
        ("next offset of", False),
        ("the next offset of orders-3", False),
        ('{"query": "q"}', False),
        ('{"query": "q", "epoch": 1, "more": 2}', False),
        ("{" * 5000, False),
        ("[]", False),
    ],
)
def test_metadata(metadata: str, expected: bool) -> None:
    assert is_position(metadata) is expected


def test_groups() -> None:
    assert not are_positions([])
    assert are_positions([source_position("t", 0), source_position("t", 1)])
    assert not are_positions([source_position("t", 0), ""])
