"""Counts and gauges as Prometheus metrics, read on request, so that counting costs nothing else.

Every number of a counts struct becomes `hopyard_<part>_<name>_total`; a name that ends in `_s` is in
seconds. No label ever holds a job's id: there would be a new series for every job.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from shared.runtime.service import Metric

PREFIX = "hopyard_"


class CountsCollector(Collector):
    """`counts`: structs of numbers by part of the service. `states`: yes-or-no by name, as 1 or 0."""

    def __init__(
        self, counts: Mapping[str, msgspec.Struct], states: Mapping[str, Callable[[], bool]]
    ) -> None:
        self._counts = counts
        self._states = states

    def collect(self) -> Iterable[MetricFamily]:
        for part, struct in self._counts.items():
            for name, value in msgspec.structs.asdict(struct).items():
                full = _name(f"{part}_{name}")
                yield CounterMetricFamily(full, full, value=value)
        for name, holds in self._states.items():
            yield GaugeMetricFamily(_name(name), _name(name), value=float(holds()))


class MetricsCollector(Collector):
    """A service's own numbers; those of one name are one metric with several sets of labels."""

    def __init__(self, read: Callable[[], Sequence[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[MetricFamily]:
        families: dict[str, MetricFamily] = {}
        for metric in self._read():
            name = PREFIX + metric.name.removeprefix(PREFIX).removesuffix("_total")
            kind, suffix = ("counter", "_total") if metric.counter else ("gauge", "")
            family = families.setdefault(name, MetricFamily(name, metric.help, kind))
            family.add_sample(name + suffix, dict(metric.labels), metric.value)
        return families.values()


def _name(name: str) -> str:
    return PREFIX + (f"{name[:-2]}_seconds" if name.endswith("_s") else name)
