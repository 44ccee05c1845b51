"""Nodes on the screen, a line for each node. Pure."""

from collections.abc import Mapping

from hopyard.show.columns import Column
from hopyard.show.tables import state_text
from hopyard.show.units import brief, in_a_line, withheld
from schemas.views import NodeSpeed, NodeView

DEFAULT = ("node", "type", "server", "state", "busy", "heard", "jobs", "note")


def node_columns() -> Mapping[str, Column[NodeView]]:
    """All columns, by their names in `nodes -o`."""
    return {
        "node": Column("node", lambda view: view.node.node_id),
        "type": Column("GPUs of", lambda view: view.node.gpu_type, spare=3),
        "server": Column("server", lambda view: view.node.server, spare=6),
        "state": Column("state", lambda view: state_text(view.state), spare=1),
        "busy": Column("busy", _busy, right=True, spare=2),
        "heard": Column("heard", _heard, spare=5),
        "jobs": Column("jobs", _holders, spare=4, cut=24, parts="running"),
        "speed": Column("speed", _speed, right=True),
        "note": Column("note", _note, spare=2, cut=32),
        "gpus": Column("gpus", lambda view: str(view.node.gpus), right=True),
        "free": Column("free", lambda view: str(view.gpus_free), right=True),
    }


def _busy(view: NodeView) -> str:
    """GPUs in use, of all; of a lost node how many is unknown."""
    if view.state == "lost":
        return f"?/{view.node.gpus}"
    busy = view.node.gpus - view.gpus_free - len(view.withheld)
    if view.withheld:  # jobs may still hold some of these
        busy = max(busy, min(sum(view.jobs.values()), view.node.gpus))
    return f"{busy}/{view.node.gpus}"


def _speed(view: NodeView) -> str:
    return "" if view.speed is None else f"{view.speed.ratio:.2f}"


def slow_text(speed: NodeSpeed) -> str:
    """Such as `slow: 0.52 of its peers, 7 jobs`."""
    across = " across nodes" if speed.across else ""
    return f"slow{across}: {speed.ratio:.2f} of its peers, {speed.jobs} jobs"


def _heard(view: NodeView) -> str:
    return "" if view.heartbeat_age_s is None else f"{brief(view.heartbeat_age_s)} ago"


def _note(view: NodeView) -> str:
    """Why a node is not wholly in use, until when it is, and that it is slow.

    A broken GPU that made it drain is named once.
    """
    others = {index: why for index, why in view.withheld.items() if why not in view.reason}
    goes = f"goes away in {brief(view.left_s)}" if view.left_s and view.state != "lost" else ""
    slow = slow_text(view.speed) if view.speed is not None and view.speed.slow else ""
    return "; ".join(part for part in (in_a_line(view.reason), withheld(others), goes, slow) if part)


def _holders(view: NodeView) -> tuple[str, ...]:
    return tuple(f"{job}:{gpus}" for job, gpus in view.jobs.items())
