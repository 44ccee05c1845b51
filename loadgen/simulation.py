"""Simulates a scenario: the services themselves, on virtual time.

Nothing here decides anything. Every service is built by its own `build`; only its ports differ from those of
a live stack. The conductor drives the cores. The asyncio shells of a live stack, on the virtual loop, give
the same facts in ten times the time; a test compares the two.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from loadgen import on_conductor, on_event_loop
from loadgen.fault_injection import Disturbance
from loadgen.progress import Watch, watched
from loadgen.results import Tally, cut_jobs, run_result
from loadgen.scenarios import arrivals as arrivals_of
from loadgen.scenarios import extended, load_cluster, own_seed
from loadgen.stack import Runners, WrapFactory, emulated_on, unwrapped
from loadgen.submissions import OnAnswer, Submissions, ignored_answer
from schemas.base import Event
from schemas.cluster import Node
from schemas.results import RunResult
from schemas.scenarios import ScenarioFile
from schemas.settings import Settings
from services.planner.policies.registry import Registry, options_kind
from shared.domain.cluster import nodes_of
from shared.domain.conflicting_settings import EMULATED, check_together
from shared.domain.policy_names import parted, written
from shared.runtime.bus.contract import Record
from shared.runtime.bus.memory import Faults

SIMULATED_SETTINGS: Mapping[str, str | float] = {
    "heartbeat_real_s": 86_400.0,
    "node_lease_real_s": 259_200.0,
    "lease_real_s": 86_400.0,
    "store_flush_real_s": 60.0,
    "solve_limit": "work",
}
"""settings of simulations. Virtual seconds pass in no time, so what a live stack does every few seconds is
done seldom. A solve ends by work, since the speed of the machine must not matter"""

Engine = Literal["conductor", "loop"]


class Simulated(msgspec.Struct, frozen=True):
    result: RunResult
    events: list[Event]
    """each fact once, in the order of the stream"""
    seqs: list[int]
    """their sequences in the stream, which also counts repetitions"""


def simulate(
    scenario: ScenarioFile,
    *,
    policy: str | None = None,
    seed: int | None = None,
    overrides: Mapping[str, str | float | bool] | None = None,
    faults: Faults | None = None,
    disturb: Sequence[Disturbance] = (),
    engine: Engine = "conductor",
    watch: Watch | None = None,
    runners: Runners | None = None,
    wrap: WrapFactory = unwrapped,
    on_answer: OnAnswer = ignored_answer,
) -> Simulated:
    """Run a scenario to the end of its last job. A function of its arguments and the code's version.

    `seed`: of all draws; None: the workload's own. `watch`: called with the progress, by the conductor only.
    `runners`: in place of the emulated ones.
    Raises UnfitPolicy, InvalidFile and ConflictingSettings.
    """
    began = time.perf_counter()
    seed = own_seed(scenario) if seed is None else seed
    settings = _settings(scenario, policy, seed, overrides)
    scenario = extended(scenario, settings.catalogue)
    arrivals = arrivals_of(scenario, seed=seed)
    hear = on_conductor.ignored if watch is None else watched(len(arrivals), watch)
    run = partial(on_conductor.run, hear=hear) if engine == "conductor" else on_event_loop.run
    runners, submissions = runners or emulated_on(scenario.catalogue), Submissions(on_answer)
    records = run(
        settings,
        _nodes(scenario),
        arrivals,
        faults,
        disturb,
        policies=scenario.policies,
        runners=runners,
        wrap=wrap,
        submissions=submissions,
    )
    events = [record.event for record in records]
    result = run_result(
        events,
        scenario=scenario.name,
        policy=settings.policy,
        seed=seed,
        speed=None,
        settings=settings,
        wall_s=time.perf_counter() - began,
        changes=scenario.policies,
        refused=submissions.refused,
        cut=cut_jobs(arrivals),
    )
    return Simulated(result, events, [record.seq for record in records])


def simulate_streaming(
    scenario: ScenarioFile,
    hear: Callable[[Record], None],
    *,
    policy: str | None = None,
    seed: int | None = None,
    overrides: Mapping[str, str | float | bool] | None = None,
    watch: Watch | None = None,
) -> RunResult:
    """As `simulate`, but call `hear` with each fact as it is stored: memory grows with jobs, not with facts.

    Raises UnfitPolicy, ConflictingSettings.
    """
    began, tally = time.perf_counter(), Tally()
    seed = own_seed(scenario) if seed is None else seed
    settings = _settings(scenario, policy, seed, overrides)
    scenario = extended(scenario, settings.catalogue)
    arrivals = arrivals_of(scenario, seed=seed)
    show_progress = on_conductor.ignored if watch is None else watched(len(arrivals), watch)

    def sink(record: Record) -> None:
        tally.add(record.event)
        hear(record)
        show_progress(record)

    submissions = Submissions()
    on_conductor.stream(
        settings,
        _nodes(scenario),
        arrivals,
        sink,
        policies=scenario.policies,
        runners=emulated_on(scenario.catalogue),
        submissions=submissions,
    )
    return tally.result(
        scenario=scenario.name,
        policy=settings.policy,
        seed=seed,
        speed=None,
        settings=settings,
        wall_s=time.perf_counter() - began,
        changes=scenario.policies,
        refused=submissions.refused,
        cut=cut_jobs(arrivals),
    )


def _settings(
    scenario: ScenarioFile,
    policy: str | None,
    seed: int,
    overrides: Mapping[str, str | float | bool] | None,
) -> Settings:
    """Raises UnfitPolicy, ConflictingSettings."""
    decided = {**(overrides or {}), "seed": seed, **({"policy": policy} if policy else {})}
    settings = virtual_settings(scenario, decided)
    registry, later = Registry(), [change.policy for change in scenario.policies]
    for name in (settings.policy, *later):  # else the figures could be those of the stand-in
        registry.find(name)
    allowed = " ".join([settings.policies_allowed, *(parted(name).name for name in later if ":" in name)])
    return msgspec.structs.replace(
        settings, policy=_drawing(settings.policy, seed), policies_allowed=allowed.strip()
    )


def _drawing(policy: str, seed: int) -> str:
    """The policy with the seed of the run, if it has one as an option and none is given."""
    name, given = parted(policy)
    usual = {field.name: field.default for field in msgspec.structs.fields(options_kind(name))}
    return policy if usual.get("seed", seed) == seed else written(name, {"seed": seed, **given})


def virtual_settings(scenario: ScenarioFile, decided: Mapping[str, str | float | bool]) -> Settings:
    """The scenario's settings, with those that the caller decides. Raises ConflictingSettings."""
    settings = msgspec.convert({**SIMULATED_SETTINGS, **scenario.settings, **decided}, Settings)
    # here speed is 1 and workers are emulated, whatever the settings say
    check_together(msgspec.structs.replace(settings, speed=1.0, runner=EMULATED))
    return settings


def _nodes(scenario: ScenarioFile) -> Sequence[Node]:
    cluster = load_cluster(scenario.cluster) if isinstance(scenario.cluster, str) else scenario.cluster
    return nodes_of(cluster)
