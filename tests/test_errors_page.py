"""docs/errors.md: each error, its code, and whether the client asks again, as the code has it."""

from __future__ import annotations

from pathlib import Path

from tidelog import errors
from tidelog.client.connections.coordinators import PASSING
from tidelog.client.connections.failures import FIRST_PAUSE_MS, LAST_PAUSE_MS, RETRIABLE
from tidelog.client.consumer_groups.committed import UNSTABLE
from tidelog.client.produce.transaction_coordinator import BUSY
from tidelog.errors import KAFKA_ERROR_CODES, TidelogError
from tidelog.wire.error_codes import ErrorCode

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")

ASKED = {
    "brokers that lead": RETRIABLE,
    "coordinators": PASSING,
    "coordinators of transactions": BUSY,
    "committed offsets": UNSTABLE,
}


def codes_table() -> str:
    """Return a row for each code that is asked again for."""
    rows = ["| code | name | retried with |", "|---|---|---|"]
    for code in ErrorCode:
        asked = [who for who, codes in ASKED.items() if code in codes]
        if "coordinators" in asked:  # All that ask one.
            asked = [who for who in asked if who in ("brokers that lead", "coordinators")]
        if asked:
            rows.append(f"| {code.value} | {code.name} | {', '.join(asked)} |")
    return "\n".join(rows)


def classes_table() -> str:
    """Return a row for each error: the broker's answer, and whether the client had retried before it raised it."""
    rows = ["| error | a broker answers | retried before |", "|---|---|---|"]
    for name in errors.__all__:
        cls = getattr(errors, name)
        if isinstance(cls, type) and issubclass(cls, TidelogError) and cls is not TidelogError:
            code, text = KAFKA_ERROR_CODES.get(cls, (None, ""))
            again = "" if code is None else "yes" if any(code in codes for codes in ASKED.values()) else "no"
            rows.append(f"| `{name}` | {text} | {again} |")
    return "\n".join(rows)


def test_the_page_shows_what_the_code_does() -> None:
    assert codes_table() in PAGE
    assert classes_table() in PAGE


def test_the_pauses() -> None:
    assert f"{FIRST_PAUSE_MS} ms after the first attempt and doubles with each further one, up to {LAST_PAUSE_MS} ms" in PAGE
