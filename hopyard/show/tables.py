"""Tables for people, one function for each kind of answer. Pure: messages in, renderables out."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from hopyard.show.columns import Column, Listing
from hopyard.show.metrics import in_words, measure
from hopyard.show.stages import STAGES
from hopyard.show.times import Times
from hopyard.show.units import duration, in_a_line, legible, number, plural, share
from schemas.instances import instance_name
from schemas.plans import Stage
from schemas.results import RunResult
from schemas.scenarios import ListedWorkload, PoissonWorkload, ScenarioFile, TraceWorkload, WorkloadSource
from schemas.views import (
    PlanView,
    ServiceState,
    ServiceView,
    SettingView,
    StatusView,
)

if TYPE_CHECKING:
    from services.planner.policies.options import DescribedOption

SHOWN_WITH_PLANS = ("decision_", "gap_")
"""beginnings of metrics that the lines about plans show already"""

THE_SAME = "the same"
"""in place of an error that another service has too"""

STATE_STYLES = {
    "running": "green",
    "queued": "yellow",
    "preempted": "yellow",
    "completed": "dim",
    "failed": "red",
    "rejected": "red",
    "cancelled": "dim",
    "alive": "green",
    "draining": "yellow",
    "lost": "red",
}


def state_text(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, ""))


def result_table(result: RunResult) -> Table:
    """The metrics of one run, and the conditions under which it ran."""
    plans = result.plans
    return facts_table(
        {
            "scenario": f"{result.scenario}, seed {result.seed}, rounds of {duration(result.round_s)}",
            "policy": result.policy,
            "jobs": _by_name(result.jobs | {"refused": len(result.refused)}),
            **{
                in_words(name): measure(name, value)
                for name, value in result.metrics.items()
                if not name.startswith(SHOWN_WITH_PLANS)
            },
            "plans": f"{plans.plans} ({_by_stage(plans.stages)})",
            "decision p50": f"{duration(plans.decision_s_p50)} of cluster time",
            "decision p99": f"{duration(plans.decision_s_p99)} of cluster time",
            "largest gap": share(plans.gap_max),
            "events": f"{result.events}, hash {result.event_log_hash[:16]}",
            "took": duration(result.wall_s),
        }
    )


def scenarios_table(found: Iterable[ScenarioFile]) -> Table:
    table = _table("scenario", "cluster", "arrivals", "about")
    for scenario in found:
        cluster = scenario.cluster if isinstance(scenario.cluster, str) else scenario.cluster.name
        _add(table, scenario.name, cluster, _workload(scenario.workload), scenario.about.strip())
    return table


def checks_table(checks: Iterable[tuple[str, bool, str]]) -> Table:
    """A line for each check: what was checked, whether it passed, and what was found."""
    table = _table("check", "", "seen")
    for what, ok, detail in checks:
        _add(table, what, Text("ok", "green") if ok else Text("bad", "bold red"), detail)
    return table


def settings_table(settings: Iterable[SettingView]) -> Table:
    """Each setting with its value and meaning; a setting that was set also with its source and default."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for each in settings:
        by = "" if each.source == "default" else f"  {each.source}; default {_value(each.default)}"
        value = (_value(each.value), "bold yellow" if by else "")
        table.add_row(each.name, Text.assemble(value, by, "\n", (each.doc, "dim")))
    return table


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value) or '""'


def options_table(options: Iterable["DescribedOption"]) -> Table:
    table = _table("option", "default", "may be", "")
    for each in options:
        _add(
            table,
            each.name,
            Text("" if each.default is None else str(each.default).lower()),
            each.choices,
            Text(each.doc, "dim"),
        )
    return table


def policies_table(policies: Iterable[Mapping[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for each in policies:
        name = "any module:attribute" if each["name"] == "*" else each["name"]
        _add(table, Text(name, no_wrap=True), Text(each["about"], "dim"))
    return table


def service_text(service: ServiceView) -> str:
    """One service in a line: its state, its restarts, its last error, its troubles."""
    back = f", restarts: {service.restarts}" if service.restarts else ""
    error = f", last error: {service.last_error}" if service.last_error else ""
    wrong = [*service.troubles, *(one.text for one in service.quarantined)]
    name = instance_name(service.name, service.instance)
    return f"{name} is {service.state}{back}{error}" + "".join(f"; {one}" for one in wrong)


def service_texts(services: Iterable[ServiceView]) -> list[str]:
    """Services, one a line; an error that several have, as while NATS is away, stands there once."""
    texts, errors = [], set[str]()
    for service in services:
        again = service.last_error in errors
        errors |= {service.last_error} - {""}
        texts.append(service_text(replace(service, last_error=THE_SAME) if again else service))
    return texts


def services_away(services: Iterable[ServiceView]) -> list[str]:
    """Services of which no instance works, each with the state of its first."""
    seen = list(services)
    working = {one.name for one in seen if one.state is ServiceState.UP}
    states = {one.name: one.state for one in reversed(seen) if one.name not in working}
    return [f"{name} is {state}" for name, state in reversed(states.items())]


def did_text(service: ServiceView) -> str:
    """What a leading instance of a service did last, and when; empty for an instance that follows."""
    if not service.leads or service.state is not ServiceState.UP:
        return ""
    name = instance_name(service.name, service.instance)
    if service.last_activity_at is None:
        return f"{name}: nothing yet"
    return f"{name}: {service.last_activity} {duration(max(service.at - service.last_activity_at, 0.0))} ago"


def status_facts(status: StatusView) -> dict[str, str]:
    """The cluster at a glance, as label → text."""
    plan = status.plan
    return {
        "policy": status.policy or "",
        "clock": "" if status.speed == 1.0 else f"{number(status.speed)} times the speed of time",
        "jobs": _by_name(status.jobs),
        "GPUs": ", ".join(f"{name} {busy}/{total}" for name, (busy, total) in status.gpus.items()),
        "nodes": _by_name(status.nodes),
        "services": _services(status.services),
        "did last, real time": "\n".join(filter(None, map(did_text, status.services))),
        "last plan": "" if plan is None else _plan(plan),
        "its notes": "" if plan is None else "; ".join(in_a_line(note) for note in plan.notes),
        "waiting": ""
        if status.raqlr is None
        else f"~{number(status.raqlr)} of the time a job runs, as the jobs that ended lately",
    }


def _services(services: Iterable[ServiceView]) -> str:
    """How many services are up; then each that is not, or has restarts or troubles."""
    up = [one for one in services if one.state is ServiceState.UP]
    said = service_texts(one for one in services if one not in up or one.restarts or one.troubles)
    return "\n".join([f"{len(up)} up", *said]) if up or said else ""


def status_table(status: StatusView, times: Times) -> Table:
    """The cluster at a glance, and every metric that has a value."""
    metrics = {in_words(name): _measured(name, value) for name, value in status.metrics.items()}
    facts = {"time": times.date(status.at)} | status_facts(status)
    if status.plan is not None:
        facts["last plan"] = f"{times.short(status.plan.at)}, {facts['last plan']}"
    return facts_table(facts | metrics)


def _measured(name: str, value: float | None) -> str:
    """The metrics of a running stack; decision times are marked as cluster time."""
    shown = measure(name, value)
    return f"{shown} of cluster time" if shown and name.startswith("decision_s") else shown


def _table(*columns: str) -> Table:
    """A plain table; a column whose name begins with > holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Add a row. Markup in a text is not interpreted."""
    table.add_row(*(cell if isinstance(cell, Text) else Text(legible(cell)) for cell in cells))


def facts_table(facts: Mapping[str, str | Text] | Mapping[str, str]) -> Table:
    """Label and value, one pair a line; a pair with an empty value is left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for label, value in facts.items():
        if value:
            _add(table, label, value)
    return table


def figures_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, spare: bool = False
) -> Listing[Sequence[str]]:
    """A table of any columns; the names of numeric columns begin with >.

    `spare`: if not all fit, the last numeric columns are left out.
    """
    shown = [_figures(index, name, spare=spare) for index, name in enumerate(columns)]
    return Listing(shown, list(rows))


def _figures(index: int, name: str, *, spare: bool) -> Column[Sequence[str]]:
    number_of = index if spare and name.startswith(">") else 0
    return Column(name.lstrip(">"), lambda row: row[index], right=name.startswith(">"), spare=number_of)


def _workload(workload: WorkloadSource) -> str:
    match workload:
        case PoissonWorkload(count=count, rate_per_hour=rate):
            return f"{plural(count, 'job')}{f', {number(rate)} per hour' if rate else ' at once'}"
        case TraceWorkload(path=path):
            return f"trace {Path(path).name}"
        case ListedWorkload(jobs=jobs):
            return f"{plural(len(jobs), 'job')}, listed"


def _plan(plan: PlanView) -> str:
    gap = "" if plan.stage is Stage.QUEUE else f", gap {share(plan.gap)}"
    return (
        f"{plan.kind.value} plan of round {plan.round}: {plan.placements} placed, {plan.left_out} left out; "
        f"{STAGES[plan.stage]}{gap}, in {duration(plan.solve_s)}"
    )


def _by_stage(counts: Mapping[str, int]) -> str:
    return _by_name({STAGES[Stage(name)]: count for name, count in counts.items()})


def _by_name(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"
