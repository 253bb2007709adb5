"""The mutants of `make mutants` fit the code, so that each of them is a mistake that the tests are measured by."""

from __future__ import annotations

from collections import Counter

import pytest

from tools.mutants import FOLDER, ROOT, Mutant, read

MUTANTS = read(FOLDER)


def test_each_mutant_has_an_id_of_its_own() -> None:
    assert [name for name, count in Counter(mutant.id for mutant in MUTANTS).items() if count > 1] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """If this fails after a change of the code: make the same mistake in the new code, and run `make mutants ARGS=<its id>`."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} has to have the text `old` of {mutant.id} once"
    assert mutant.applied_to(text) != text
