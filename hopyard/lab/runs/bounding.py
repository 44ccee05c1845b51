"""The bounds of one scenario and seed: its jobs, what its world truly lets them do, and the two programs."""

from hopyard.lab.runs.bounds import Offer, Unsolved, Work, makespan_s, mean_jct_s
from hopyard.lab.runs.trials import Bounded, Bounding
from loadgen.scenarios import arrivals, cluster_of, extended
from loadgen.simulation import virtual_settings
from loadgen.world.fastest import Fastest
from schemas.ids import GpuType
from schemas.jobs import JobSpec
from shared.domain.cluster import gpus_by_type, nodes_of
from shared.domain.demand import job_spec
from shared.runtime.plugins import WORLDS


def bounded(trial: Bounding) -> Bounded:
    """The bounds over the jobs that fit somewhere: the others never end, whatever the policy."""
    settings = virtual_settings(trial.scenario, {**trial.overrides, "seed": trial.seed})
    nodes = nodes_of(cluster_of(trial.scenario))
    catalogue = extended(trial.scenario, settings.catalogue).catalogue
    fastest = Fastest(WORLDS.load(settings.world)(settings, catalogue), nodes)
    stock = gpus_by_type(nodes)
    specs = [(arrival.at_s, job_spec(arrival.job)) for arrival in arrivals(trial.scenario, seed=trial.seed)]
    works = [Work(at_s, offers) for at_s, spec in specs if (offers := _offers(fastest, spec, list(stock)))]
    none = len(specs) - len(works)
    if not works:
        return Bounded(left_out=none, unknown="no job fits anywhere")
    gpus = list(stock.values())
    try:
        return Bounded(makespan_s=makespan_s(works, gpus), jct_s_mean=mean_jct_s(works, gpus), left_out=none)
    except Unsolved as error:
        return Bounded(left_out=none, unknown=str(error))


def _offers(fastest: Fastest, spec: JobSpec, kinds: list[GpuType]) -> tuple[Offer, ...]:
    return tuple(
        Offer(kinds.index(place.gpu_type), place.gpus, spec.samples / place.rate)
        for place in fastest.places(spec)
    )
