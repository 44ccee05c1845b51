"""Every table of figures says where they come from: stored results, or a command and its version."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.figures import PAGES, Table, figures_of, tables
from tests.docs.pages import name

SETTINGS = ("option", "setting", "experiment")
"""first headings of tables whose numbers are no results"""
NUMBER = re.compile(r"\W*\d")
COMMAND = re.compile(r"`[^`]*\b(hopyard|pytest|loadgen)\b[^`]*`|^(\$ |uv run )?hopyard ", re.MULTILINE)
TEST = re.compile(r"`(pytest )?[^`]*tests/[\w/]+\.py[^`]*`")
"""what a test makes again at every change is of today"""
VERSION = re.compile(r"\bcommit [0-9a-f]{7}\b")


def unsourced(page: Path) -> Iterator[Table]:
    """Tables of figures that are not stored, not computed by a test, and name no command and version."""
    text, groups = page.read_text("utf-8"), _groups(page)
    for table in tables(text):
        if _has_figures(table) and table.heading[0] not in groups and not _says_whence(table.beside):
            yield table


def _groups(page: Path) -> set[str]:
    keys = figures_of(page)
    return {
        group
        for key in keys
        for group in (key.group, f"{key.group}: {key.measure}", f"{key.group}: {key.measure} {key.unit}")
    }


def _has_figures(table: Table) -> bool:
    """Numbers in most cells behind the first of a row."""
    cells = [cell for row in table.rows for cell in row[1:] if cell]
    return table.heading[0] not in SETTINGS and sum(map(_is_number, cells)) * 2 > len(cells)


def _is_number(cell: str) -> bool:
    return NUMBER.match(cell) is not None


def _says_whence(text: str) -> bool:
    return TEST.search(text) is not None or all(said.search(text) for said in (COMMAND, VERSION))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tables_of_figures_say_where_they_come_from(page: Path) -> None:
    assert [f"line {table.line}, {table.heading[0]}" for table in unsourced(page)] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("`hopyard compare --scenario tiny`, at commit 0123abc.", True),
        ("```sh\nhopyard compare --scenario tiny\n```\nmade at commit 0123abc.", True),
        ("`hopyard compare --scenario tiny`, by an earlier version.", False),
        ("Five seeds, at commit 0123abc.", False),
        ("Held to theirs by `pytest tests/docs/test_sources.py`.", True),
        ("", False),
    ],
)
def test_texts_that_count_as_a_source(text: str, says: bool) -> None:  # noqa: FBT001
    assert _says_whence(text) == says


@pytest.mark.parametrize(
    ("rows", "has"),
    [
        ("| hops | 1.2 ± 0.3 | −4 % |", True),
        ("| hops | **1.2** | what it is |", False),
        ("| hops | what it does | |", False),
    ],
)
def test_a_table_of_figures_is_one_of_numbers(rows: str, has: bool) -> None:  # noqa: FBT001
    [table] = tables(f"# A page\n\n| | one | two |\n|---|--:|--:|\n{rows}\n")
    assert _has_figures(table) == has
    assert table.line == 3
