"""The glossary's words are the words used: its names exist, and the words it replaces do not occur."""

import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, SOURCES, name
from tests.paths import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
HERE = Path(__file__)
ROW = re.compile(r"^\| (?!word |not |--)([^|]+)\|([^|]+)\|(?:([^|]+)\|)?$", re.MULTILINE)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def rows() -> list[tuple[str, str, str]]:
    """Term, meaning and name in the code; a replaced word has no third column."""
    found = ROW.findall(GLOSSARY.read_text("utf-8"))
    return [(term.strip(), meaning.strip(), code.strip(" `")) for term, meaning, code in found]


TERMS = {term: code for term, _, code in rows() if code}
REPLACED = {word: "" for term, _, code in rows() if not code for word in term.split(", ")}


def words(said: str) -> set[str]:
    """The words of a text or an identifier, in lower case: `PricedDive` and `priced_dive` have two."""
    return {found.lower() for found in WORD.findall(said)}


CODE = [path for path in SOURCES if ROOT / "tests" not in path.parents]


@cache
def text(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def identifiers(path: Path) -> frozenset[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text(path)).readline)
    return frozenset(token.string for token in tokens if token.type == tokenize.NAME)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_stands_in_the_code(term: str) -> None:
    code = TERMS[term]
    assert any(code in identifiers(path) for path in CODE if code in text(path))


def test_each_term_is_explained_once() -> None:
    terms = [term for term, _, _ in rows()]
    assert len(terms) == len(set(terms)) > 50
    assert all(meaning for _, meaning, _ in rows())


@pytest.mark.parametrize("path", [path for path in SOURCES if path != HERE], ids=name)
def test_code_uses_no_replaced_word(path: Path) -> None:
    """In identifiers, docstrings, comments and messages."""
    assert words(text(path)) & REPLACED.keys() == set()


@pytest.mark.parametrize("path", [path for path in PAGES if path != GLOSSARY], ids=name)
def test_pages_use_no_replaced_word(path: Path) -> None:
    assert words(text(path)) & REPLACED.keys() == set()
