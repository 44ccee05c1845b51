"""Whatever a page names is there: files, folders, modules, and the pages it points to."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.runtime import plugins
from tests.docs.pages import PAGES, SOURCES, name
from tests.paths import ROOT

FOLDERS = ("schemas", "shared", "services", "loadgen", "hopyard", "hopjob", "tests", "docs")
QUOTED = re.compile(r"`([^`\n]+)`")
LINKED = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
MODULE = re.compile(rf"(?:{'|'.join(FOLDERS)})(?:\.\w+)+")
PLUGINS = {group.entry_points for group in vars(plugins).values() if isinstance(group, plugins.Group)}
NO_FILES = {"greedy.py", "train.py", "hopyard/admission"}
"""files that a page has its reader write; the name of an image"""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_modules_that_a_page_names_exist(page: Path) -> None:
    quoted = QUOTED.findall(page.read_text("utf-8"))
    assert [text for text in quoted if not all(map(exists, named(text)))] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = LINKED.findall(page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("services/planner/work/", True),
        ("services/planner/programs/", False),
        ("services/<name>/core.py", True),
        ("schemas/events.py", True),
        ("core.py", True),
        ("no_such_module.py", False),
        ("shared.runtime.bus.contract", True),
        ("shared.runtime.bus.contract.Facts", True),
        ("shared.runtime.train", False),
        ("loadgen/*/", True),
    ],
)
def test_files_that_count_as_existing(text: str, *, there: bool) -> None:
    assert all(map(exists, named(text))) == there


def named(text: str) -> Iterator[str]:
    """The files, folders and modules among the words of a quoted text."""
    for word in text.split():
        path = re.sub(r"<\w+>", "*", word)
        first, slash, _ = path.partition("/")
        if (slash and first in FOLDERS) or re.fullmatch(r"[\w*]+\.py", path) or MODULE.fullmatch(word):
            yield path


def exists(path: str) -> bool:
    if path in NO_FILES:
        return True
    if MODULE.fullmatch(path):
        return _is_module(path) or _is_member(*path.rsplit(".", 1)) or path in PLUGINS
    if "/" in path:
        return any(ROOT.glob(path.rstrip("/")))
    return any(re.fullmatch(path.replace("*", r"\w*"), source.name) for source in SOURCES)


def _is_module(dotted: str) -> bool:
    path = ROOT / dotted.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def _is_member(module: str, member: str) -> bool:
    file = (ROOT / module.replace(".", "/")).with_suffix(".py")
    return (
        file.is_file()
        and re.search(rf"^(?:class |def |){member}\b", file.read_text("utf-8"), re.MULTILINE) is not None
    )
