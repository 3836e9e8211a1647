"""The mutants fit the sources of today. Whether the tests notice them, `python -m tests.mutation` finds out."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import MUTANTS, Mutant
from tests.mutation.rows import ROOT, rows


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rows.split()[0]}: {mutant.breaks}")
def test_a_mutant_is_an_edit_of_single_places(mutant: Mutant) -> None:
    source = (ROOT / "src" / "tidelog" / mutant.path).read_text()
    assert [source.count(old) for old, _ in mutant.edits] == [1] * len(mutant.edits)
    edited = mutant.applied_to(source)
    assert edited != source
    compile(edited, mutant.path, "exec")
    assert set(mutant.rows.split()) <= rows().keys()
