"""The report of `accuracy`: tables by data loading and model, pictures of Hops figures 6 and 7. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hopyard.lab.experiments import errors
from hopyard.lab.experiments.accuracy import LEARNING, RESIDUALS, SCHEDULED, STRUCTURES, THEORY, TRACE
from hopyard.lab.experiments.paper import ACCURACY_STABLE
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.statistics import Summary, summary
from hopyard.lab.runs.cases import Finished
from loadgen.scenarios import catalogue_of
from loadgen.world.structure import structures
from schemas.accuracy import Execution

SHOWN = (("vit-b16", "food-101"), ("vgg13", "cifar10"))
"""the models of figure 6"""

Seeded = Sequence[tuple[int, Execution]]
"""executions, each with the seed of its run"""


def report(finished: Sequence[Finished]) -> Iterator[Part]:
    by_group = {group: _executions(finished, group) for group in (THEORY, LEARNING, TRACE)}
    scheduled = [one for one in finished if one.case.group == SCHEDULED]
    if scheduled:
        yield from errors.predicted(scheduled, "world")
    if by_group[THEORY]:
        yield from _theory(by_group[THEORY], _loads(finished))
    if any(one.case.group == STRUCTURES for one in finished):
        yield from _worlds(finished)
    if by_group[LEARNING]:
        yield from _learning(by_group[LEARNING], finished)
    if by_group[TRACE]:
        yield "## On the trace, by layer\n\nAccuracy is 1 − mean of |predicted − measured| / measured."
        yield _table(by_group[TRACE], lambda one: one.layer.value, "layer")


def figures_of(finished: Sequence[Finished]) -> list[Figure]:
    """Accuracies over seeds, of stable and unstable loading, aggregated and distributed, by group."""
    found = []
    loads = _loads(finished)
    for group in (THEORY, LEARNING, TRACE):
        for arm, chosen in _kinds(_executions(finished, group), loads).items():
            value = _accuracy(chosen)
            if value is not None:
                stated = ACCURACY_STABLE if group == THEORY and arm.startswith("stable") else None
                found.append(
                    Figure(
                        group=group,
                        arm=arm,
                        measure="accuracy",
                        unit="",
                        mean=value.mean,
                        half_width=value.half_width,
                        values=value.values,
                        paper=stated,
                    )
                )
    scheduled = [one for one in finished if one.case.group == SCHEDULED]
    for group in (STRUCTURES, RESIDUALS):
        found += _worlds_of(finished, group)
    return [*found, *(errors.figures_of(scheduled) if scheduled else ())]


def _worlds_of(finished: Sequence[Finished], group: str) -> Iterator[Figure]:
    for world, chosen in _by_world(finished, group).items():
        for kind, executions in _kinds(chosen, _loads(finished)).items():
            accuracy = _accuracy(executions)
            if accuracy is not None:
                yield Figure(
                    group=group,
                    arm=world,
                    measure=kind,
                    unit="%",
                    mean=100 * accuracy.mean,
                    half_width=None,
                    values=tuple([100 * value for value in accuracy.values]),
                )


def _by_world(finished: Sequence[Finished], group: str) -> dict[str, Seeded]:
    return {
        one.case.arm: [(one.case.seed, execution) for execution in one.outcome.executions]
        for one in finished
        if one.case.group == group
    }


def _executions(finished: Sequence[Finished], group: str) -> Seeded:
    return [
        (one.case.seed, execution)
        for one in finished
        if one.case.group == group
        for execution in one.outcome.executions
    ]


def _kinds(executions: Seeded, loads: Callable[[Execution], str]) -> dict[str, Seeded]:
    kinds: dict[str, list[tuple[int, Execution]]] = {}
    for seed, one in executions:
        loading = loads(one)
        place = "distributed" if one.distributed else "aggregated"
        kinds.setdefault(f"{loading}, {place}", []).append((seed, one))
    return dict(sorted(kinds.items()))


def _accuracy(executions: Seeded) -> Summary | None:
    """1 − mean error of each seed, over seeds."""
    by_seed: dict[int, list[float]] = {}
    for seed, one in executions:
        by_seed.setdefault(seed, []).append(one.error)
    return summary([1 - sum(errors) / len(errors) for errors in by_seed.values()]) if by_seed else None


def _theory(executions: Seeded, loads: Callable[[Execution], str]) -> Iterator[Part]:
    yield (
        "## Figure 6: the theory layer alone\n\nThroughput predicted when a job was placed against what it "
        "then did. The store answers nothing here: every prediction comes from the profile and the formulas. "
        f"The paper reports accuracies above {ACCURACY_STABLE:.0%} for stable data loading. "
        "Accuracy is 1 − mean of |predicted − measured| / measured."
    )
    yield _table(executions, loads, "data loading")
    shown = _shown(executions)
    if shown:
        caption = "Predicted and measured throughput by GPU type and nodes × GPUs of each; mean over seeds."
        yield Picture("figure-6", caption, pictures.bars(shown, "samples/s"))
    yield "### By model"
    yield _table(executions, _workload, "model on data set")


def _worlds(finished: Sequence[Finished]) -> Iterator[Part]:
    yield (
        "### In other worlds\n\nThe same where the world has what no formula of the estimator knows "
        "(the setting `world_structure`), one seed: by the equations alone, then times what gangs of other "
        "shapes had shown of them until then."
    )
    for group in (STRUCTURES, RESIDUALS):
        yield _worlds_table(finished, group)


def _worlds_table(finished: Sequence[Finished], group: str) -> Table:
    kinds = [
        f"{loads}, {place}" for loads in ("stable", "unstable") for place in ("aggregated", "distributed")
    ]
    rows = []
    for world, chosen in _by_world(finished, group).items():
        found = _kinds(chosen, _loads(finished))
        rows.append([world, structures()[world].about, *(_share(found.get(kind, [])) for kind in kinds)])
    return Table(["world", "what it has", *(f">{kind}" for kind in kinds)], rows)


def _learning(executions: Seeded, finished: Sequence[Finished]) -> Iterator[Part]:
    yield (
        "## Figure 7: unstable data loading\n\nSome data sets load in two ways: most batches are ready, some "
        "are still being read. A profile of some tens of iterations says little about how often, so "
        "predictions start out wrong; every execution teaches the estimator more."
    )
    loading = _loading(finished)
    if loading:
        caption = "Time to load a batch, as the profiler measured it: all iterations of all seeds."
        yield Picture("figure-7a", caption, pictures.histograms(loading, "seconds"))
    curves = {
        name: [(float(number), 100 * one.error) for number, one in numbered(chosen)]
        for name, chosen in _by(executions, _workload).items()
    }
    drawn = pictures.points({"": curves}, list(curves), ("execution", "error, %"), level=(5.0, "5 %"))
    caption = (
        "Error of the prediction by how often the workload has run on so many GPUs of the type; dots are "
        "single executions, lines go through their means."
    )
    yield Picture("figure-7b", caption, drawn)
    yield _errors(executions)


def numbered(executions: Seeded) -> list[tuple[int, Execution]]:
    """Executions, each with its number among those of the same run, workload, GPU type and shape."""
    found: dict[tuple[object, ...], int] = {}
    result = []
    for seed, one in executions:
        key = (seed, one.fingerprint, one.gpu_type, one.gpus, one.nodes)
        found[key] = found.get(key, 0) + 1
        result.append((found[key], one))
    return result


def _table(executions: Seeded, key: Callable[[Execution], str], heading: str) -> Table:
    columns = [heading, ">aggregated", ">distributed", ">worst", ">bias", ">executions"]
    rows = []
    for name, chosen in _by(executions, key).items():
        near = [each for each in chosen if not each[1].distributed]
        far = [each for each in chosen if each[1].distributed]
        worst = max(one.error for _, one in chosen)
        bias = sum(one.bias for _, one in chosen) / len(chosen)
        rows.append([name, _share(near), _share(far), f"{1 - worst:.1%}", f"{bias:+.1%}", str(len(chosen))])
    return Table(columns, rows)


def _errors(executions: Seeded) -> Table:
    """Mean error by number of the execution, a column a workload."""
    errors: dict[tuple[int, str], list[float]] = {}
    for number, one in numbered(executions):
        errors.setdefault((number, _workload(one)), []).append(one.error)
    names = sorted({name for _, name in errors})
    rows = [
        [str(number), *(_percent(errors.get((number, name))) for name in names)]
        for number in sorted({number for number, _ in errors})
    ]
    return Table([">execution", *(f">{name}" for name in names)], rows)


def _percent(values: Sequence[float] | None) -> str:
    return f"{_mean(values):.1%}" if values else "–"


def _by(executions: Seeded, key: Callable[[Execution], str]) -> dict[str, Seeded]:
    found: dict[str, list[tuple[int, Execution]]] = {}
    for seed, one in executions:
        found.setdefault(key(one), []).append((seed, one))
    return dict(sorted(found.items()))


def _share(executions: Seeded) -> str:
    value = _accuracy(executions)
    if value is None:
        return "–"
    return f"{value.mean:.1%}" + ("" if value.half_width is None else f" ± {value.half_width:.1%}")


def _loads(finished: Sequence[Finished]) -> Callable[[Execution], str]:
    """How an execution's data set loads, as the catalogue of the runs has it.

    The profiler sees only what some iterations show.
    """
    loading = {
        name: dataset.loading
        for one in finished
        for name, dataset in catalogue_of(one.case.trial.scenario).datasets.items()
    }
    return lambda one: loading[one.fingerprint.split("|")[1]]


def _workload(one: Execution) -> str:
    model, dataset, *_ = one.fingerprint.split("|")
    return f"{model} on {dataset}"


def _shown(executions: Seeded) -> Mapping[str, pictures.Groups]:
    """Model → GPU type → nodes × GPUs of each → predicted and measured, samples/s."""
    panels: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for model, dataset in SHOWN:
        name = f"{model} on {dataset}"
        chosen = [one for _, one in executions if _workload(one) == name]
        for one in sorted(chosen, key=lambda one: (one.gpu_type, one.gpus, one.nodes)):
            shape = f"{one.nodes}×{one.gpus // one.nodes}"
            alike = [each for each in chosen if _same(each, one)]
            panels.setdefault(name, {}).setdefault(one.gpu_type, {})[shape] = {
                "predicted": _mean(each.estimated for each in alike),
                "measured": _mean(each.measured for each in alike),
            }
    return panels


def _same(one: Execution, other: Execution) -> bool:
    return (one.gpu_type, one.gpus, one.nodes) == (other.gpu_type, other.gpus, other.nodes)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _loading(finished: Sequence[Finished]) -> dict[str, list[float]]:
    """Data times by workload, at most three."""
    found: dict[str, list[float]] = {}
    for one in finished:
        for row in one.outcome.loading if one.case.group == LEARNING else ():
            found.setdefault(f"{row.model} on {row.dataset}", []).extend(row.data_s)
    return dict(sorted(found.items())[:3])
