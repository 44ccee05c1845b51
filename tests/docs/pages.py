"""The pages a reader finds: README, CONTRIBUTING, CHANGELOG, and everything below `docs/`."""

from pathlib import Path

from tests.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = sorted(
    path
    for folder in ("schemas", "shared", "services", "loadgen", "hopyard", "hopjob", "tests", "docs")
    for path in (ROOT / folder).rglob("*.py")
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))
