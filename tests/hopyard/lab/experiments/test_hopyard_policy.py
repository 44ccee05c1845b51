"""Our own policy's experiment: what it runs, and that nobody tuned there."""

from pathlib import Path

import msgspec

from hopyard.lab.experiments import hopyard_policy
from hopyard.lab.experiments.suite import EXPERIMENTS, Plan, own_seeds
from hopyard.lab.runs.cases import Case
from loadgen.scenarios import load_scenario
from services.planner.policies.hops.hopyard import HopyardOptions
from shared.domain.policy_names import parted
from tests.hopyard.lab.experiment_builders import options


def test_no_seed_that_the_defaults_were_chosen_on_is_reported() -> None:
    for scenario, seeds in hopyard_policy.TUNED_ON.items():
        assert set(hopyard_policy.HELD_OUT[scenario]).isdisjoint(seeds)


def test_all_scenarios_have_three_arms_and_the_one_asked_for_each_term_left_out() -> None:
    found: dict[str, dict[str, list[int]]] = {}
    for case in hopyard_policy.cases(options(scenario=load_scenario("hops-64"))):
        found.setdefault(case.group, {}).setdefault(case.arm, []).append(case.seed)
    assert {group: list(arms) for group, arms in found.items()} == {
        group: [*hopyard_policy.ARMS, *hopyard_policy.ABLATED]
        if group == "hops-64"
        else [*hopyard_policy.ARMS]
        for group in hopyard_policy.HELD_OUT
    }
    assert all(
        seeds == [*hopyard_policy.HELD_OUT[group]] for group, arms in found.items() for seeds in arms.values()
    )


def test_a_quick_run_has_only_the_requested_scenario() -> None:
    asked = options(quick=True)
    mine = msgspec.structs.replace(asked.scenario, settings={"round_s": 90.0})
    cases = list(hopyard_policy.cases(msgspec.structs.replace(asked, scenario=mine)))
    assert {(case.group, case.seed) for case in cases} == {("tiny", 1), ("tiny", 2)}
    assert all(case.trial.scenario == mine for case in cases)


def test_all_scenarios_have_the_settings_of_the_shell() -> None:
    scenario = load_scenario("hops-64")
    mine = msgspec.structs.replace(scenario, settings={**scenario.settings, "round_s": 90.0})
    cases = hopyard_policy.cases(options(scenario=mine, given={"round_s": 90.0}))
    assert {case.trial.scenario.settings["round_s"] for case in cases} == {90.0}


def test_the_report_names_the_seeds_that_were_run() -> None:
    plan = Plan(
        name="hopyard",
        experiment=EXPERIMENTS["hopyard"],
        options=options(scenario=load_scenario("hops-64"), seeds=(1, 2, 3, 4, 5)),
        out=Path(),
        runs=Path(),
        workers=1,
        events=False,
        about={},
    )
    run = {name: sorted({case.seed for case in members}) for name, members in by_group(plan).items()}
    said = "; ".join(f"{name} {', '.join(map(str, seeds))}" for name, seeds in run.items())
    assert own_seeds(plan) == {"seeds": said}
    assert own_seeds(msgspec.structs.replace(plan, experiment=EXPERIMENTS["table3"])) == {}


def by_group(plan: Plan) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in plan.experiment.cases(plan.options):
        found.setdefault(case.group, []).append(case)
    return found


def test_an_arm_without_a_term_changes_one_option() -> None:
    for setup in hopyard_policy.ABLATED.values():
        _, changed = parted(setup.policy)
        assert len(changed) == 1
        assert msgspec.convert(changed, HopyardOptions, strict=False) != HopyardOptions()
