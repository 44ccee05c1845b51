"""Options of policies: one parser, and a policy of one file that has some."""

import re
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.events import JobCompleted, JobPreempted, JobStarted
from services.planner.policies.gavel.policy import Gavel, gavel_ftf_agnostic
from services.planner.policies.hops.policy import HopsOptions
from services.planner.policies.options import described, options_of
from services.planner.policies.registry import Registry, UnfitPolicy, about, names, options_kind

ONE_FILE = '''
"""Fifo, but no more than so many jobs run at once."""

import msgspec

from services.planner.policies.classical.fifo import Fifo
from services.planner.policies.contract.view import View


class Capped(Fifo):
    class Options(msgspec.Struct, frozen=True):
        jobs: int = 1
        """that run at once, at most"""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.jobs = options.jobs

    def order(self, view: View):
        running = [job for job in view.jobs if job.present]
        room = max(self.jobs - view.jobs_present + len(view.jobs) - len(running), 0)
        return running + [job for job in view.jobs if not job.present][:room]
'''


@pytest.fixture
def _one_file(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "capped.py").write_text(ONE_FILE, encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))
    sys.modules.pop("capped", None)


def most_at_once(policy: str) -> int:
    """Jobs that ran at the same time, at most."""
    ran = simulate(load_scenario("tiny"), policy=policy)
    assert ran.result.policy == policy
    steps: dict[type, int] = {JobStarted: 1, JobCompleted: -1, JobPreempted: -1}
    return max(accumulate(steps.get(type(fact), 0) for fact in ran.events))


@pytest.mark.usefixtures("_one_file")
def test_a_policy_with_options_is_one_file() -> None:
    with pytest.raises(UnfitPolicy, match="policy capped:Capped has no option gpus; it has jobs"):
        simulate(load_scenario("tiny"), policy="capped:Capped+gpus=1")
    assert most_at_once("capped:Capped+jobs=2") == 2
    [option] = described(options_kind("capped:Capped"))
    assert (option.name, option.default, option.doc) == ("jobs", 1, "that run at once, at most")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"moving_cost": "1"},
            "has no option moving_cost; it has priority_power, .*; did you mean moving_cost_s",
        ),
        ({"window_factor": "wide"}, "policy hops, option window_factor: it must be a number"),
        ({"window_factor": "0"}, "policy hops, option window_factor: it must be a number > 0"),
        ({"priority_rule": "loudest"}, "option priority_rule: it must be lr, ftf, las, sjf, srtf, fifo"),
        ({"moving_cost_s": "nan"}, "policy hops, option moving_cost_s: "),
        (
            {"as_printed": "fit foo"},
            "as_printed: it must be words between spaces, of fit, .*, all, but is 'fit foo'",
        ),
    ],
)
def test_a_mistake_is_named_with_the_choices(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        options_of(HopsOptions, given, "hops")


def test_written_options_reach_the_policy() -> None:
    options = options_of(HopsOptions, {"priority_rule": "las", "moving_cost_s": "1.5e+1"}, "hops")
    assert options == HopsOptions(priority_rule="las", moving_cost_s=15.0)


@pytest.mark.parametrize("policy", names())
def test_every_option_has_a_default_and_a_description(policy: str) -> None:
    for option in described(options_kind(policy)):
        assert option.doc
        assert option.default is None or isinstance(option.default, str | float | int | bool)


@pytest.mark.parametrize("policy", names())
def test_the_description_of_a_policy_is_one_line_and_names_others_by_their_names(policy: str) -> None:
    line = about(policy)
    assert line.endswith(".")
    assert len(line) <= 105
    assert set(re.findall("`([^`]+)`", line)) <= set(names()) - {policy}
    assert not re.search(r"\bAs \w|\w=\w", line), "options and classes are not what a user knows"


def test_no_two_policies_have_the_same_description() -> None:
    assert len({about(policy) for policy in names()}) == len(names())


def test_a_variant_is_the_same_policy_with_other_defaults() -> None:
    policy = Registry().find("gavel-ftf-agnostic+reset_s=60")
    assert isinstance(policy, Gavel)
    assert gavel_ftf_agnostic.Options() == gavel_ftf_agnostic.Options(objective="finish-time", agnostic=True)
    assert Registry().find("gavel-ftf+objective=makespan") is not Registry().find("gavel-ftf")


def test_a_policy_without_options_takes_none() -> None:
    name = "tests.services.planner.planner_policies:Counts"
    with pytest.raises(UnfitPolicy, match=f"policy {name} has no option window; it has none"):
        Registry().find(f"{name}+window=1")
