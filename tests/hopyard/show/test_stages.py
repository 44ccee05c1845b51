"""How a plan was found, in the words of commands and of the page."""

import re
from pathlib import Path

from hopyard.show.stages import STAGES
from schemas.plans import Stage
from services.admission import http

PAGE = Path(http.__file__).parent / "page" / "plans.js"


def test_every_stage_has_words() -> None:
    assert set(STAGES) == set(Stage)


def test_the_page_uses_the_words_of_the_commands() -> None:
    table = PAGE.read_text().partition("const FOUND = {")[2].partition("}")[0]
    assert dict(re.findall(r'(\w+): "(.*?)"', table)) == {stage.value: said for stage, said in STAGES.items()}
