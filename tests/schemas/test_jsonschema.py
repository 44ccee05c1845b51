"""The generated JSON Schema documents."""

import pytest

from schemas.jsonschema import DOCUMENTS, FOLDER, document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_written_schema_is_that_of_the_structs(name: str) -> None:
    written = (FOLDER / f"{name}.json").read_text()
    assert written == document(name), "run `python -m schemas.jsonschema`"


def test_no_schema_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(DOCUMENTS)
