"""Cells as text: nothing that is shown is further from the value than its three digits say."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.chapter import Bytes, Cell, Claim, Millis, Verdict
from studies.quantities import show_bytes, show_float, show_millis
from studies.report.cells import pieces, view

UNIT_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
UNIT_MS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def read(text: str, units: dict[str, int]) -> float:
    """Read "2 min 30 s" or "1.5 KiB" back."""
    sign = -1 if text.startswith(("-", "−")) else 1
    words = text.lstrip("-−").replace(",", "").split()
    return sign * sum(float(count) * units[unit] for count, unit in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    ("cell", "kind", "text"),
    [
        (None, "nothing", "none"),
        (True, "text", "yes"),
        (False, "text", "no"),
        (0, "number", "0"),
        (1_234_567, "number", "1,234,567"),
        (-1234, "number", "-1,234"),
        (0.0, "number", "0"),
        (1.0, "number", "1"),
        (0.999999, "number", "1"),
        (999.9, "number", "1,000"),
        (1234.5, "number", "1,230"),
        (12.345, "number", "12.3"),
        (0.001234, "number", "0.00123"),
        (1.234e-7, "number", "1.23e-07"),
        (math.inf, "number", "∞"),
        (-math.inf, "number", "−∞"),
        (math.nan, "number", "not a number"),
        (Bytes(0), "number", "0 B"),
        (Bytes(56), "number", "56 B"),
        (Bytes(1023), "number", "1,023 B"),
        (Bytes(1024), "number", "1 KiB"),
        (Bytes(1_048_575), "number", "1 MiB"),
        (Bytes(3_628_800_000), "number", "3.38 GiB"),
        (Millis(0), "number", "0 ms"),
        (Millis(999), "number", "999 ms"),
        (Millis(1500), "number", "1.5 s"),
        (Millis(59_999), "number", "1 min"),
        (Millis(150_000), "number", "2 min 30 s"),
        (Millis(-150_000), "number", "−2 min 30 s"),
        (Millis(3_599_999), "number", "1 h"),
        (Millis(6 * 3_600_000 + 60_000), "number", "6 h 1 min"),
        (Millis(2.5 * 86_400_000), "number", "2.5 d"),
        ("words", "text", "words"),
        ("", "text", ""),
        ("12.3%", "number", "12.3%"),
        ("1,440 of 86,400", "number", "1,440 of 86,400"),
        ("1.5 x", "number", "1.5 x"),
        ("3 of them", "text", "3 of them"),
    ],
)
def test_cells(cell: Cell, kind: str, text: str) -> None:
    shown = view(cell)
    assert (shown.kind, shown.text) == (kind, text)


def test_what_is_rounded_has_its_exact_value_beside_it() -> None:
    assert view(Bytes(3_628_800_000)).exact == "3,628,800,000 bytes"
    assert view(Millis(1234.5)).exact == "1,234.5 ms"


def test_a_claim_is_kept_whole() -> None:
    claim = Claim("a", "b", Verdict.PARTLY)
    assert view(claim).claim == claim


def test_code_stands_between_backticks() -> None:
    assert pieces("the `time index` of a `log`") == [(False, "the "), (True, "time index"), (False, " of a "), (True, "log")]
    assert pieces("a ` alone") == [(False, "a ` alone")]


@given(st.floats(min_value=1e-12, max_value=1e15), st.sampled_from([1, -1]))
def test_a_number_is_near_what_is_shown(value: float, sign: int) -> None:
    text = show_float(sign * value)
    assert float(text.replace(",", "")) == pytest.approx(sign * value, rel=0.0051)
    digits = re.sub(r"\D", "", text.split("e")[0]).strip("0")
    assert len(digits) <= 3


@given(st.floats(min_value=0.01, max_value=1e17))
def test_a_size_is_near_what_is_shown(value: float) -> None:
    assert read(show_bytes(value), UNIT_BYTES) == pytest.approx(value, rel=0.0051)


@given(st.floats(min_value=0.01, max_value=1e13), st.sampled_from([1, -1]))
def test_a_duration_is_near_what_is_shown(value: float, sign: int) -> None:
    assert read(show_millis(sign * value), UNIT_MS) == pytest.approx(sign * value, rel=0.0085)
