"""Which nodes run jobs slower than other nodes of their kind run the same jobs. Pure; it decides nothing.

A pace is what a gang did over one run: samples/s per GPU. Paces compare if they are of one workload and mode
of synchronisation, and if their nodes have the same GPU types in servers of the same model. Over several
nodes the GPUs on each must be as many, too. Inside a node those of gangs with as many GPUs compare or, where
there are none, those of larger gangs, whose GPUs are no faster. Estimates do not come in: they follow what
slow nodes show, and of a workload that is far from theory they are wrong on every node. With p the newest
pace of a job on node n, and R the newest paces that compare with it and are of gangs without n,

    d = ln p − median ln R;  level = median of d over the last JOBS jobs on n;  ratio = exp level

    error = √(π / 2) · spread / √k,  spread = 1.4826 · median |d − level| · √(m / (m − 1))  over all nodes

with m the number of the node's jobs, and k that of its jobs or of the paces compared with, whichever is
less. A node is slow if level + SURE · error < ln SLOW. If k is below FEWEST nothing is said about it.

A gang is as slow as its slowest node, and the others are not to be blamed. So gangs inside a node are looked
at first, and gangs over several nodes apart from them (only these show a slow network). Of the nodes that
seem slow, those count as slow that shared no gang with a slower one. Their paces are then left out, also of
what others are compared with, and the others are looked at again. Of a node that had half of its gangs or
more with one other node, nothing is said because of these gangs: the other one may be the slow one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import exp, inf, log, pi, sqrt
from statistics import fmean, median

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.placement import LOCKSTEP, Sync
from schemas.views import NodeSpeed
from services.monitor.cluster_now import ClusterNow
from services.monitor.overview import reached
from shared.domain import gangs
from shared.domain.ledger.records import JobRecord, NodeRecord, Run

WINDOW_S = 24 * 3600.0
"""seconds; what ended before is not looked at"""
PACES_MOST = 2_000
"""the newest paces, those that are looked at"""
COMPARED_MOST = 64
"""paces that one is compared with, the newest; a node that has many jobs is no surer of more"""
JOBS = 8
"""jobs that a node is judged by, those that ran there last; so it is cleared soon after it was repaired"""
FEWEST = 3
SLOW = 0.8
"""ratio; servers of one model differ by less"""
SURE = 4.0
"""standard errors; of three, one in a hundred looks at noise of 30 % blamed a node"""
SPREAD_LEAST = 0.1
"""a few paces may agree by chance"""
SHORTEST_S = 120.0
"""seconds; a shorter run measures little but the start of its processes"""


class Kind(msgspec.Struct, frozen=True):
    """What paces that compare have in common."""

    fingerprint: Fingerprint
    sync: Sync
    members: tuple[tuple[GpuType, str, int], ...]
    """GPU type, model of server and, of a gang over several nodes, number of GPUs; for each node"""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    job_id: JobId
    kind: Kind
    nodes: tuple[NodeId, ...]
    gpus: int
    """of the whole gang"""
    rate: float
    """samples/s per GPU"""
    at: float
    """when what was measured ended"""


class _Shown(msgspec.Struct):
    """What the last jobs on a node showed."""

    deviations: list[float]
    """d, by job"""
    compared: int
    """number of paces that they were compared with"""
    apart: bool
    """whether no other node was in half of its gangs, or in more"""

    @property
    def level(self) -> float:
        return median(self.deviations)

    @property
    def known(self) -> int:
        return min(len(self.deviations), self.compared) if self.apart else 0


def speeds_of(paces: Sequence[Pace]) -> dict[NodeId, NodeSpeed]:
    """By node, as far as enough is known. `paces`: by time."""
    speeds: dict[NodeId, NodeSpeed] = {}
    for across in (False, True):
        left = [one for one in paces if (len(one.nodes) > 1) is across]
        while True:
            slow_already = {node for node, speed in speeds.items() if speed.slow}
            left = [one for one in left if slow_already.isdisjoint(one.nodes)]
            shown = _shown(left)
            spread = _spread(shown.values())
            judged = {
                node: _speed(one, spread, across=across) for node, one in shown.items() if one.known >= FEWEST
            }
            slow = [node for node, speed in judged.items() if speed.slow]
            if not slow:
                speeds = judged | speeds
                break
            slow.sort(key=lambda node: (shown[node].level, fmean(shown[node].deviations), node))
            speeds |= {node: judged[node] for node in _without_slower(slow, left)}
    return speeds


def _without_slower(slow: Sequence[NodeId], paces: Iterable[Pace]) -> list[NodeId]:
    """Those of `slow`, the slowest first, that shared no gang with one before them."""
    together: dict[NodeId, set[NodeId]] = defaultdict(set)
    for one in paces:
        for node in one.nodes:
            together[node].update(one.nodes)
    found: list[NodeId] = []
    mates: set[NodeId] = set()
    for node in slow:
        if node not in mates:
            found.append(node)
            mates |= together[node]
    return found


def _shown(paces: Sequence[Pace]) -> dict[NodeId, _Shown]:
    kinds: dict[Kind, list[int]] = defaultdict(list)
    newest: dict[NodeId, dict[JobId, int]] = defaultdict(dict)
    for index, one in enumerate(paces):
        kinds[one.kind].append(index)
        for node in one.nodes:
            newest[node].pop(one.job_id, None)
            newest[node][one.job_id] = index
    rates = [log(one.rate) for one in paces]
    found = {}
    for node, by_job in newest.items():
        deviations, compared, own = [], set(), []
        levels: dict[tuple[Kind, int], float | None] = {}
        for index in reversed(by_job.values()):
            one = paces[index]
            alike = one.kind, one.gpus
            if alike not in levels:
                others = _others(one, node, kinds[one.kind], paces)
                levels[alike] = median([rates[other] for other in others]) if others else None
                compared.update(others)
            level = levels[alike]
            if level is not None:
                deviations.append(rates[index] - level)
                own.append(one.nodes)
            if len(deviations) == JOBS:
                break
        if deviations:
            found[node] = _Shown(deviations, len(compared), apart=_apart(node, own))
    return found


def _apart(node: NodeId, own: Sequence[tuple[NodeId, ...]]) -> bool:
    with_it = Counter(one for nodes in own for one in nodes if one != node)
    return max(with_it.values(), default=0) < len(own) / 2


def _others(one: Pace, node: NodeId, alike: Sequence[int], paces: Sequence[Pace]) -> list[int]:
    """The newest paces that one of a node compares with. `alike`: those of its kind, by time."""
    equal: list[int] = []
    larger: list[int] = []
    for index in reversed(alike):
        other = paces[index]
        if other.gpus >= one.gpus and node not in other.nodes:
            (equal if other.gpus == one.gpus else larger).append(index)
            if len(equal) == COMPARED_MOST:
                break
    return equal or larger[:COMPARED_MOST]


def _spread(shown: Iterable[_Shown]) -> float:
    far: list[float] = []
    for one in shown:
        jobs, level = len(one.deviations), one.level
        if jobs > 1:
            far += [abs(d - level) * sqrt(jobs / (jobs - 1)) for d in one.deviations]
    return max(1.4826 * median(far), SPREAD_LEAST) if far else SPREAD_LEAST


def _speed(one: _Shown, spread: float, *, across: bool) -> NodeSpeed:
    error = sqrt(pi / 2 / one.known) * spread
    slow = one.level + SURE * error < log(SLOW)
    return NodeSpeed(ratio=exp(one.level), jobs=len(one.deviations), across=across, slow=slow)


# ---- paces of a cluster


def node_speeds(cluster: ClusterNow) -> dict[NodeId, NodeSpeed]:
    """Of jobs that run, what their last hour or two showed counts."""
    return speeds_of(sorted(_paces(cluster), key=lambda one: one.at))


def _paces(cluster: ClusterNow) -> Iterator[Pace]:
    """Those of the newest runs."""
    oldest, nodes = cluster.now - WINDOW_S, cluster.ledger.nodes
    of_type_since = {node_id: _of_type_since(known) for node_id, known in nodes.items()}
    runs: list[tuple[float, JobRecord, Run]] = []
    for record in cluster.ledger.jobs.values():
        for run in reversed(record.runs):
            ended = cluster.now if run.ended_at is None else run.ended_at
            if ended < oldest:
                break
            if ended - run.started_at >= SHORTEST_S:
                runs.append((ended, record, run))
    runs.sort(key=lambda one: one[0], reverse=True)
    paces = (
        pace
        for _, record, run in runs
        if all(run.started_at >= of_type_since.get(node, inf) for node in run.gang.nodes)
        if (pace := _pace(record, run, cluster)) is not None
    )
    return islice(paces, PACES_MOST)


def _of_type_since(known: NodeRecord) -> float:
    """Since when a node has GPUs of its present type: it may have come back with others."""
    return max((until for _, until, _, one in known.up if one != known.whole.gpu_type), default=-inf)


def _pace(record: JobRecord, run: Run, cluster: ClusterNow) -> Pace | None:
    """What a run measured; None: too little, or its GPUs were not its own, or it was copies."""
    gang = run.gang
    if run.share < 1.0 or gangs.in_rota(gang) or gangs.merges(gang):
        return None
    samples, at = reached(record, run, cluster)
    since, before = run.started_at, run.samples_from
    if run.ended_at is None:
        since, before = cluster.marks.get(record.job_id, (since, before))
    if at - since < SHORTEST_S or samples <= before:
        return None
    nodes = [cluster.ledger.nodes[node] for node in gang.nodes]
    across = len(nodes) > 1
    members = [
        (known.whole.gpu_type, known.whole.server, member.gpus if across else 0)
        for known, member in zip(nodes, gang.members, strict=True)
    ]
    in_order = tuple(sorted(members) if gang.sync == LOCKSTEP else members)
    return Pace(
        job_id=record.job_id,
        kind=Kind(record.spec.workload.fingerprint, gang.sync, in_order),
        nodes=gang.nodes,
        gpus=gang.gpus,
        rate=(samples - before) / (at - since) / gang.gpus,
        at=at,
    )
