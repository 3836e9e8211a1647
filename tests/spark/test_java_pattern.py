"""Java's regular expressions: read alike, translated or refused, never read otherwise."""

from __future__ import annotations

import pytest

from tidelog.errors import InvalidArgumentError
from tidelog.spark.java_pattern import compile_java_pattern

TOPICS = ["orders", "orders.eu", "orders-1", "returns", "a.b", "axb", "abab"]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders.eu", "orders-1"]),
        ("orders|returns", ["orders", "returns"]),
        (r"a\.b", ["a.b"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        (r"\Qorders\E[.-]\w+", ["orders.eu", "orders-1"]),
        (r"(?<half>..)\k<half>", ["abab"]),
        (r"(?i)ORDERS", ["orders"]),
        (r"(?!orders).*", ["returns", "a.b", "axb", "abab"]),
        (r"orders\z", ["orders"]),
        (r"orders\Z", ["orders"]),
        (r"[a-z]++", ["orders", "returns", "axb", "abab"]),
        (r"(?>a|ab)bab", ["abab"]),
        (r"orders-\d", ["orders-1"]),
        (r"[]a.]+b", ["a.b"]),
        (r"[^]a-z]+.*|a[\Q.]\Eb]b", ["a.b"]),
        (r"a[\]x]b&?&?", ["axb"]),
    ],
)
def test_matches_as_in_java(pattern: str, matches: list[str]) -> None:
    compiled = compile_java_pattern(pattern)
    assert [topic for topic in TOPICS if compiled.fullmatch(topic)] == matches


def test_digits_are_ascii_as_in_java() -> None:
    assert compile_java_pattern(r"\d").fullmatch("٣") is None


def test_an_escaped_backslash_starts_nothing() -> None:
    assert compile_java_pattern(r"\\k<a>").fullmatch(r"\k<a>")


@pytest.mark.parametrize(
    "pattern", [r"\p{Alpha}+", r"[a-z&&[^b]]", r"[a[b]]", r"\h", r"\R", r"\G", "(", "*", "(?U)a", "(?u)a", "a{9999999999}"]
)
def test_what_only_java_reads_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match="option subscribePattern: invalid pattern") as error:
        compile_java_pattern(pattern)
    assert repr(pattern) in str(error.value)
    assert "\n" not in str(error.value)
