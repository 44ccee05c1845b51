"""The job files that the pages show are job files."""

from pathlib import Path

import pytest

from schemas.jobs import JobFile
from shared.domain.demand import job_spec
from shared.runtime.files import parse
from tests.paths import ROOT


def shown(page: Path) -> str:
    _, _, rest = page.read_text("utf-8").partition("```yaml\nname: ")
    return "name: " + rest.partition("```")[0]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "operating.md"], ids=lambda page: page.name
)
def test_a_job_file_in_a_page_is_one(page: Path) -> None:
    assert job_spec(parse(shown(page), page.name, JobFile)).demand


def test_the_table_of_the_job_file_has_every_field() -> None:
    text = (ROOT / "docs" / "operating.md").read_text("utf-8")
    table = text.partition("## The job file")[2].partition("```yaml")[0]
    missing = [name for name in JobFile.__struct_fields__ if f"`{name}`" not in table]
    assert not missing
