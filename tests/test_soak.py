"""`make soak` runs what TIDELOG_SOAK makes longer: a test that draws more there than anywhere else is named in the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGER = re.compile(r"TIDELOG_SOAK|IS_SOAK|run_state_machine_as_test")
NO_TESTS = {"tests/test_soak.py"}


def named(variable: str) -> list[str]:
    """Return the files and folders of a list in the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (found,) = re.findall(rf"^{variable} := (.*)$", text, re.MULTILINE)
    return list(found.split())


def test_make_soak_has_all_that_it_makes_longer() -> None:
    longer = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if LONGER.search(path.read_text(encoding="utf-8"))
    } - NO_TESTS
    assert len(longer) > 20, "the files were found"
    places = named("SOAKED") + named("SOAKED_INTEROP")
    assert sorted(name for name in longer if not any(name == place or name.startswith(f"{place}/") for place in places)) == []


def test_what_it_names_is_there() -> None:
    for place in named("SOAKED") + named("SOAKED_INTEROP"):
        assert (ROOT / place).exists(), place
    assert [place for place in named("SOAKED") if place.startswith("tests/interop")] == []
