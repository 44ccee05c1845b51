"""Experiments that are grids of simulations: which arms each has, and the runs they make. Pure.

An arm is a curve or a row of the report: a policy with its settings. Arms of one group are compared
among each other.
"""

from collections.abc import Iterator

import msgspec

from hopyard.failures import Invalid
from hopyard.lab.experiments import baselines
from hopyard.lab.experiments.baselines import (
    AUTHORS,
    PAPER,
    READ_OTHERWISE,
    Contender,
    Setup,
    readings,
    setup_of,
)
from hopyard.lab.experiments.options import Options
from hopyard.lab.experiments.paper import ARRIVAL_RATES
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import Simulation
from loadgen.scenarios import arrivals
from schemas.scenarios import ArrivingJob, ListedWorkload, PoissonWorkload, ScenarioFile
from shared.domain.policy_names import parted, written

HOUR_S = 3600.0
HOPS = Contender("hops", "hops")
POLICIES = ("hops", "sia", "gavel")
"""policies that the paper compares"""
PRIORITIES = ("lr", "las", "sjf", "srtf", "ftf", "fifo")
QUICK_RATES = (20.0, 80.0)
ASKED = "side by side"


def asked(options: Options) -> Iterator[Case]:
    """Every policy exactly as it was named."""
    for policy in options.policies:
        setup = Setup(policy.policy, policy.overrides)
        yield from _seeded(options, ASKED, policy.label, setup)


def comparison(options: Options) -> Iterator[Case]:
    """Every policy in both settings."""
    for setting in (PAPER, AUTHORS):
        for policy in options.policies:
            yield from _seeded(options, setting, policy.label, setup_of(setting, policy))


def table(options: Options) -> Iterator[Case]:
    """The paper's comparison: its policies, and hops by finish-time fairness too (section 4.4).

    Also with other choices where the paper leaves something open.
    """
    yield from comparison(options)
    if tuple(policy.label for policy in options.policies) == POLICIES:
        yield from _seeded(options, PAPER, "hops, priority ftf", _by_priority(HOPS, "ftf"))
        for arm, setup in readings().items():
            yield from _seeded(options, READ_OTHERWISE, arm, setup)


def departures(options: Options) -> Iterator[Case]:
    """Hops, with each rule in which it is not the paper's as printed, and with all of them."""
    for arm, setup in baselines.departures().items():
        yield from _seeded(options, baselines.DEPARTED, arm, setup)


def priorities(options: Options) -> Iterator[Case]:
    """The first policy under every rule of the queue."""
    policy = options.policies[0]
    for rule in PRIORITIES:
        yield from _seeded(options, f"{policy.label} by priority", rule, _by_priority(policy, rule))


def arrival_rates(options: Options) -> Iterator[Case]:
    """The same number of jobs, arriving faster and faster."""
    for rate in QUICK_RATES if options.quick else ARRIVAL_RATES:
        for seed in options.seeds:
            here = msgspec.structs.replace(
                options, scenario=at_rate(options.scenario, rate, seed), seeds=(seed,)
            )
            for policy in options.policies:
                yield from _seeded(here, PAPER, policy.label, setup_of(PAPER, policy), at=rate)


def _by_priority(policy: Contender, rule: str) -> Setup:
    setup = setup_of(PAPER, policy)
    name, options = parted(setup.policy)
    return Setup(written(name, options | {"priority_rule": rule}), setup.overrides)


def _seeded(
    options: Options, group: str, arm: str, setup: Setup, *, at: float | None = None
) -> Iterator[Case]:
    for seed in options.seeds:
        trial = Simulation(
            scenario=options.scenario, policy=setup.policy, seed=seed, overrides=setup.overrides
        )
        yield Case(group=group, arm=arm, trial=trial, at=at)


def at_rate(scenario: ScenarioFile, rate: float, seed: int) -> ScenarioFile:
    """The scenario with its jobs arriving at `rate` an hour in the mean; those of a trace closer together.

    Raises Invalid when all come at once.
    """
    workload = scenario.workload
    if isinstance(workload, PoissonWorkload):
        faster = msgspec.structs.replace(workload, rate_per_hour=rate)
        return msgspec.structs.replace(scenario, workload=faster)
    found = arrivals(scenario, seed=seed)
    span_s = max((arrival.at_s for arrival in found), default=0.0)
    if span_s == 0:
        raise Invalid(f"{scenario.name}: all jobs arrive at once, so there is no rate to change")
    factor = len(found) / rate * HOUR_S / span_s
    jobs = [ArrivingJob(at_s=arrival.at_s * factor, job=arrival.job) for arrival in found]
    return msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=jobs))
