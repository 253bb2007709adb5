"""The mutants of `make mutants` fit the code, so that each of them is a mistake that the tests are measured by."""

from __future__ import annotations

from collections import Counter

from tools.mutants import FOLDER, ROOT, read

MUTANTS = read(FOLDER)


def test_each_mutant_has_an_id_of_its_own() -> None:
    assert [name for name, count in Counter(mutant.id for mutant in MUTANTS).items() if count > 1] == []


def test_each_mutant_fits_the_code() -> None:
    """If this fails after a change of the code: make the same mistake in the new code, and run `make mutants ARGS=<its id>`."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in {one.file for one in MUTANTS}}
    unfit = {
        one.id: one.file
        for one in MUTANTS
        if texts[one.file].count(one.old) != 1 or one.applied_to(texts[one.file]) == texts[one.file]
    }
    assert unfit == {}, "each of these files has to have the text `old` of its mutant once"
