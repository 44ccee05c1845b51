"""The page's tables of words have an entry for all that the API can say."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hopyard.show.events import OUTCOMES
from hopyard.show.metrics import LABELS
from hopyard.show.why import OPENINGS
from services.admission import http
from services.monitor.history import AGENT_RESTARTED, NODE_LOST
from shared.domain.states import JobState

PAGE = Path(http.__file__).parent / "page"
FIGURES = frozenset({"duration", "number", "percent"})


def entries(file: str, name: str) -> dict[str, str]:
    table = (PAGE / file).read_text().partition(f"const {name} = {{")[2].partition("};")[0]
    return {one or other: said for one, other, said in re.findall(r'(?:"([\w-]+)"|(\w+)): "(.*?)"', table)}


def listed(file: str, name: str) -> str:
    return (PAGE / file).read_text().partition(f"const {name} = [")[2].partition("];")[0]


@pytest.mark.parametrize(
    ("file", "name", "said"),
    [
        ("text.js", "REASONS", OPENINGS),
        ("timeline.js", "ENDS", [*(outcome.value for outcome in OUTCOMES), NODE_LOST, AGENT_RESTARTED]),
    ],
)
def test_the_page_has_words_for_each(file: str, name: str, said: Iterable[str]) -> None:
    assert set(entries(file, name)) == set(said)


def test_the_page_says_of_outcomes_what_the_commands_say() -> None:
    ends = entries("timeline.js", "ENDS")
    assert {outcome.value: ends[outcome] for outcome in OUTCOMES} == {
        outcome.value: said for outcome, said in OUTCOMES.items()
    }


def test_the_page_counts_jobs_in_every_state() -> None:
    assert set(re.findall(r'"(\w+)"', listed("cluster.js", "JOB_STATES"))) == set(JobState)


def test_the_page_shows_metrics_that_there_are() -> None:
    figures = re.findall(r'\[".*?", "(\w+)", (\w+)\]', listed("cluster.js", "FIGURES"))
    assert figures
    assert {name for name, _ in figures} <= set(LABELS)
    assert {shown for _, shown in figures} <= FIGURES
