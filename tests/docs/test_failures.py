"""Every promise of the page of failures names tests that are there."""

import re

from tests.paths import ROOT

PAGE = ROOT / "docs" / "failures.md"
PROMISE = re.compile(r"^- \*\*.+(?:\n  .+)*", re.MULTILINE)
LINK = re.compile(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def test_every_promise_of_the_page_of_failures_names_tests_that_are_there() -> None:
    promises = PROMISE.findall(PAGE.read_text("utf-8"))
    assert len(promises) >= 65
    assert [promise for promise in promises if not LINK.search(promise)] == []
    named = [link for promise in promises for link in LINK.findall(promise)]
    assert [f"{file}: {name}" for name, file in named if not is_test(name, file)] == []


def is_test(name: str, file: str) -> bool:
    text = (ROOT / file).read_text("utf-8") if (ROOT / file).is_file() else ""
    return re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE) is not None
