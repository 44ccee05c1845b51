"""Tables of the emulated world's catalogue."""

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from hopyard.show.units import number
from loadgen.catalogue.measured import Compared, compared, mean_ratio, typical_factor
from loadgen.catalogue.specs import Catalogue
from schemas.catalogue import Mix

TERA, GIGA = 1e12, 1e9


def catalogue_tables(known: Catalogue) -> Mapping[str, Table]:
    """A table for each kind of entries."""
    return {
        "models": _models(known),
        "datasets": _datasets(known),
        "gpus": _gpus(known),
        "servers": _servers(known),
        "mixes": _mixes(known),
        "measured": _measured(compared(known)),
    }


def _models(known: Catalogue) -> Table:
    rows = (
        (row.model, row.dataset, str(row.batch), row.optimizer, row.precision, number(row.parameters / 1e6))
        for row in known.models.values()
    )
    return _table(("model", "dataset", ">batch", "optimizer", "precision", ">parameters, M"), rows)


def _datasets(known: Catalogue) -> Table:
    rows = ((name, f"{row.samples:,}", row.loading) for name, row in known.datasets.items())
    return _table(("dataset", ">samples", "loading"), rows)


def _gpus(known: Catalogue) -> Table:
    rows = (
        (
            name,
            number(row.memory / GIGA),
            f"{row.bandwidth / GIGA:,.0f}",
            *(number(rate / TERA) if rate else "" for rate in (row.fp32, row.tf32, row.fp16)),
        )
        for name, row in known.gpus.items()
    )
    return _table(("gpu", ">GB", ">GB/s", ">fp32, TFLOP/s", ">tf32", ">fp16"), rows)


def _servers(known: Catalogue) -> Table:
    rows = (
        (name, str(row.cores), f"{row.speed:g}", f"{row.copy / GIGA:g}", f"{row.disk / GIGA:g}")
        for name, row in known.servers.items()
    )
    return _table(("server", ">cores", ">speed", ">copy, GB/s", ">disk, GB/s"), rows)


def _mixes(known: Catalogue) -> Table:
    rows = ((name, str(len(mix.jobs)), _hours(mix), _most(mix)) for name, mix in known.mixes.items())
    return _table(("mix", ">models", ">GPU-hours of a job", ">GPUs at most"), rows)


def _measured(rows: Sequence[Compared]) -> Table:
    """A row for each series of batches, and one for each table, and for all."""
    columns = ("table", "model", "gpu", ">batch", ">ratio", ">off", ">held")
    by_series: dict[tuple[str, ...], list[Compared]] = {}
    for row in rows:
        one = row.measured
        by_series.setdefault((one.table, f"{one.model} {one.dataset}", one.gpu), []).append(row)
    shown = [(*name, _batches(found), *_factors(found)) for name, found in by_series.items()]
    tables = {name: [row for row in rows if row.measured.table == name] for name, *_ in by_series}
    shown += [(name, "", "", "", *_factors(found)) for name, found in (tables | {"all": list(rows)}).items()]
    return _table(columns, shown)


def _batches(rows: Sequence[Compared]) -> str:
    batches = [row.measured.batch for row in rows]
    return str(batches[0]) if len(batches) == 1 else f"{min(batches)}-{max(batches)}"


def _factors(rows: Sequence[Compared]) -> tuple[str, str, str]:
    held = [row for row in rows if row.measured.part == "held"]
    off = f"{typical_factor(held):.2f}" if held else ""
    return f"{mean_ratio(rows):.2f}", f"{typical_factor(rows):.2f}", off


def _hours(mix: Mix) -> str:
    bounds = [size.hours for size in mix.sizes.values()]
    return f"{min(least for least, _ in bounds):g} to {max(most for _, most in bounds):g}"


def _most(mix: Mix) -> str:
    return str(max(size.gpus[1] for size in mix.sizes.values()))


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """A column whose name begins with > holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*row)
    return table
