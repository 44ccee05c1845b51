"""Refines loading and waiting times of the profile while jobs run (Hops section 3.3, running mode). Pure.

While a job trains, only T_d and T_w are recorded. The profiler fits the mixture of T_d again, to the last
stretches; this module compares it with the T_w of the last stretches of gangs, which may be older: a job on
one GPU shows no T_w, and takes back nothing of what gangs showed. `drawn_wait_s` is the wait that N
independent draws from the mixture would cause. Real processes are neither independent (those of a node share
its disk) nor alike (servers and iterations differ). So, over the stretches of gangs:

- two components: T_w is the drawn wait times mean measured wait / mean drawn wait;
- one component: T_w is the drawn wait plus what was measured beyond it, whatever N is.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from schemas.calibration import Path
from schemas.cluster import Node
from schemas.measurements import DataMode, TimeModules
from schemas.samples import ThroughputObserved
from services.estimator.store.contract import Bandwidth, Loading, Running
from services.estimator.theory.formula import Gangs, Modules, drawn_wait_s
from services.estimator.theory.paths import exchange, paths_of
from shared.domain.iteration import OURS, Column, Law

FIRST_AT = 8
"""observations of a workload on a type after which its loading is refined for the first time"""
FACTOR = 4
"""it is refined again after FACTOR times as many observations, and so on"""
FACTOR_MOST = 3.0
"""largest measured wait / drawn wait that is believed"""
DIGITS = 6
NARROWEST = 1e-9


def due(observations: int) -> bool:
    """Whether loading is refined after this number of observations."""
    times = observations // FIRST_AT
    return observations % FIRST_AT == 0 and times > 0 and _is_power(times)


def _is_power(number: int) -> bool:
    while number % FACTOR == 0:
        number //= FACTOR
    return number == 1


def data_of(observations: Sequence[ThroughputObserved]) -> tuple[float, ...]:
    """All T_d, in their order."""
    return tuple(time for seen in observations for time in seen.data_s)


def refined(
    times: TimeModules,
    data: tuple[DataMode, ...],
    seen: Running,
    node: Node,
    known: Bandwidth | None,
    *,
    law: Law = OURS,
) -> Loading:
    """The loading after a refinement. `node`: any node of the type; `known`: the type's bandwidths."""
    plain = Loading(data=data, wait_factor=1.0, wait_s=0.0, iterations=len(data_of(seen.latest)))
    gangs = seen.gangs
    if not gangs:
        return plain
    if not law.draws:
        return msgspec.structs.replace(plain, waits_s=recorded_waits_s(data, gangs))
    drawn = float(np.mean(_drawn_s(Modules(times, plain), gangs, paths_of(node, known, law))))
    waited = float(np.mean([np.add.reduce(one.wait_s) / len(one.wait_s) for one in gangs]))
    if len(data) > 1 and drawn > 0:
        factor = min(waited / drawn, FACTOR_MOST)
        return msgspec.structs.replace(plain, wait_factor=_rounded(factor))
    return msgspec.structs.replace(plain, wait_s=_rounded(max(waited - drawn, 0.0)))


def recorded_waits_s(data: tuple[DataMode, ...], gangs: Sequence[ThroughputObserved]) -> tuple[float, ...]:
    """Mean T_w of the iterations in each condition, hit and miss, as the paper fits it beside T_d.

    An iteration belongs to the component under which its T_d is likelier; a component without iterations has
    the mean of all.
    """
    loaded = np.array([time for seen in gangs for time in seen.data_s[: len(seen.wait_s)]])
    waited = np.array([time for seen in gangs for time in seen.wait_s[: len(seen.data_s)]])
    mean, std, share = (
        np.array([getattr(mode, name) for mode in data]) for name in ("mean_s", "std_s", "probability")
    )
    width = np.maximum(std, NARROWEST * np.maximum(mean, NARROWEST))
    likely = (
        np.log(np.maximum(share, NARROWEST)) - np.log(width) - ((loaded[:, None] - mean) / width) ** 2 / 2
    )
    component = likely.argmax(axis=1)
    every = float(waited.mean()) if len(waited) else 0.0
    means = [
        float(waited[component == own].mean()) if (component == own).any() else every
        for own in range(len(data))
    ]
    return tuple(map(_rounded, means))


def _drawn_s(modules: Modules, seen: Sequence[ThroughputObserved], paths: Sequence[Path]) -> Column:
    """The wait of each gang by independent draws, seconds; gangs of one shape are computed once."""
    shapes = [
        (one.gang.gpus, len(one.gang.members), min(member.gpus for member in one.gang.members))
        for one in seen
    ]
    row = {shape: index for index, shape in enumerate(dict.fromkeys(shapes))}
    drawn = drawn_wait_s(_gangs(modules, list(row), paths))
    return np.asarray(drawn[[row[shape] for shape in shapes]], dtype=np.float64)


def _gangs(modules: Modules, shapes: Sequence[tuple[int, int, int]], paths: Sequence[Path]) -> Gangs:
    """A row a shape: GPUs, nodes, and GPUs of the node that has the fewest."""
    gpus, nodes, fewest = np.array(shapes, dtype=np.int64).T
    which = np.zeros(len(shapes), dtype=np.int64)
    latency_s, bandwidth = exchange([paths], which, nodes > 1, fewest=fewest, gpus=gpus)
    return Gangs(
        modules=[modules],
        which=which,
        batch_size=np.ones(len(shapes), dtype=np.int64),
        gpus=gpus,
        distributed=nodes > 1,
        latency_s=latency_s,
        bandwidth=bandwidth,
    )


def _rounded(value: float) -> float:
    """The value, rounded to digits that are equal on every machine."""
    return float(f"{value:.{DIGITS}g}")
