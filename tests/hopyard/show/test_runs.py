"""How a run ended, in the words of commands and of the page."""

import re
from pathlib import Path

import pytest

from hopyard.show.runs import ENDS, runs_listing
from hopyard.show.times import Times
from schemas.events import PreemptReason
from services.admission import http
from tests.hopyard.commands.test_show import run

PAGE = Path(http.__file__).parent / "page" / "job.js"


@pytest.mark.parametrize("reason", PreemptReason)
def test_a_run_that_ended_for_any_reason_is_shown(reason: PreemptReason) -> None:
    _, line = runs_listing([run(100.0, 300.0, reason, a=1)], Times(None)).lines(120)
    assert line.plain.endswith(ENDS[reason])


def test_the_page_uses_the_words_of_the_commands() -> None:
    table = PAGE.read_text().partition("const STOPPED = {")[2].partition("}")[0]
    words = {one or other: said for one, other, said in re.findall(r'(?:"([\w-]+)"|(\w+)): "(.*?)"', table)}
    assert words == {reason.value: said for reason, said in ENDS.items()}
