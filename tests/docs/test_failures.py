"""Every promise of the page of failures names tests that are there."""

import re

from tests.paths import ROOT

PAGE = ROOT / "docs" / "failures.md"
LINK = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def test_every_row_of_the_page_of_failures_names_tests_that_are_there() -> None:
    tables = [
        part.splitlines() for part in PAGE.read_text("utf-8").split("\n\n") if part.startswith("| fault |")
    ]
    promises = [row for table in tables for row in table[2:]]
    assert len(promises) >= 16
    assert [row for row in promises if not LINK.search(row)] == []
    named = [link for row in promises for link in LINK.findall(row)]
    assert [f"{file}: {name}" for name, file in named if not is_test(name, file)] == []


def is_test(name: str, file: str) -> bool:
    text = (ROOT / file).read_text("utf-8") if (ROOT / file).is_file() else ""
    return re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE) is not None
