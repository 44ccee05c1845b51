"""Wires admission."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.cluster import ClusterFile, Node
from schemas.events import (
    JobCancelled,
    JobHeld,
    JobPriorityChanged,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeRemoved,
    NodeRestored,
    PolicyChosen,
)
from schemas.questions import ADMISSION
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.admission.core import Admission
from services.admission.folds import FOLDS
from services.admission.http.authorization import Authorization, check_exposure
from services.admission.http.forwarding import Forwarding
from services.admission.state import AdmissionState
from shared.domain.cluster import nodes_of
from shared.runtime.files import read_file
from shared.runtime.plugins import accepted_policies
from shared.runtime.service import Metric, Ports, Service
from shared.runtime.settings import describe

if TYPE_CHECKING:
    from aiohttp import web


def build(settings: Settings, ports: Ports, nodes: Sequence[Node] = ()) -> Service:
    """`nodes`: those known beforehand; without them, those of the cluster file, if one is set."""
    core = Admission(settings, nodes=nodes or _cluster_nodes(settings), policies=accepted_policies(settings))
    authorization = Authorization(settings)
    forwarding = Forwarding(ports.bus, ports.clock, settings, core)
    return Service(
        name="admission",
        core=core,
        facts=subjects_of(FOLDS),
        quiet_facts=frozenset(FOLDS),
        own_facts=(
            JobSubmitted,
            JobCancelled,
            JobPriorityChanged,
            JobHeld,
            JobReleased,
            NodeDrained,
            NodeRestored,
            NodeRemoved,
            PolicyChosen,
        ),
        answers=ADMISSION,
        tasks=[forwarding.attach],
        routes=lambda: _routes(ports, settings, forwarding, authorization),
        metrics=lambda: [*_metrics(core.state), *authorization.metrics()],
    )


def _routes(
    ports: Ports, settings: Settings, forwarding: Forwarding, authorization: Authorization
) -> "Sequence[web.RouteDef]":
    from services.admission.http.api import Api  # noqa: PLC0415 - brings aiohttp, which only a web server needs

    check_exposure(settings)
    in_force = describe(settings, ports.sources)
    return Api(ports.bus, ports.clock, settings, forwarding, in_force, authorization=authorization).routes()


def _cluster_nodes(settings: Settings) -> Sequence[Node]:
    return nodes_of(read_file(Path(settings.cluster), ClusterFile)) if settings.cluster else ()


def _metrics(state: AdmissionState) -> list[Metric]:
    return [
        Metric(name="admission_jobs_open", help="Jobs that have not ended.", value=len(state.open)),
        Metric(
            name="admission_illegal_facts",
            help="Facts that could not follow from the state of their job, and were ignored.",
            value=state.illegal,
            counter=True,
        ),
    ]
