"""Our own policy's experiment: what it runs, and that nobody tuned there."""

import msgspec

from hopyard.lab.experiments import hopyard_policy
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
    assert {(case.group, case.seed) for case in hopyard_policy.cases(options(quick=True))} == {
        ("tiny", 1),
        ("tiny", 2),
    }


def test_an_arm_without_a_term_changes_one_option() -> None:
    for setup in hopyard_policy.ABLATED.values():
        _, changed = parted(setup.policy)
        assert len(changed) == 1
        assert msgspec.convert(changed, HopyardOptions, strict=False) != HopyardOptions()
