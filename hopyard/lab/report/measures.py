"""The measures that reports show: which metric, under which name, in which unit. Pure."""

from collections.abc import Iterable

import msgspec

from hopyard.lab.report.statistics import RESOLUTION, Summary
from hopyard.show.metrics import LABELS

HOUR_S = 3600.0


class Measure(msgspec.Struct, frozen=True):
    metric: str
    """its name in `RunResult.metrics`"""
    title: str
    unit: str = ""
    scale: float = 1.0
    """the unit shown, in units of the metric"""

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title


HEADLINE = (
    Measure("makespan_s", LABELS["makespan_s"], "h", HOUR_S),
    Measure("jct_s_mean", LABELS["jct_s_mean"], "h", HOUR_S),
    Measure("wt_s_mean", "mean WT", "h", HOUR_S),
    Measure("lr_max", "max LR"),
    Measure("fragments_mean", "avg frag", "GPUs"),
    Measure("ftf_rho_max", "max FTF ρ"),
)
"""what the paper's tables have, and the ρ of its section 4.4"""

FURTHER = (
    Measure("jct_s_p50", LABELS["jct_s_p50"], "h", HOUR_S),
    Measure("jct_s_p95", LABELS["jct_s_p95"], "h", HOUR_S),
    Measure("jct_s_p99", LABELS["jct_s_p99"], "h", HOUR_S),
    Measure("jct_s_max", LABELS["jct_s_max"], "h", HOUR_S),
    Measure("lr_mean", "mean LR"),
    Measure("ftf_rho_mean", "mean ρ"),
    Measure("ftf_unfair_share", LABELS["ftf_unfair_share"], "%", 0.01),
    Measure("jain_index", LABELS["jain_index"]),
    Measure("jain_equal", LABELS["jain_equal"]),
    Measure("gru", LABELS["gru"], "%", 0.01),
    Measure("cru", LABELS["cru"], "%", 0.01),
    Measure("cru_slots", LABELS["cru_slots"], "%", 0.01),
    Measure("cluster_throughput_mean", "throughput", "GPUs"),
    Measure("restarts", LABELS["restarts"]),
    Measure("weighted_jct_s", LABELS["weighted_jct_s"], "h", HOUR_S),
    Measure("switch_s_mean", LABELS["switch_s_mean"], "s"),
    Measure("lost_work_gpu_s", "lost work", "GPU·h", HOUR_S),
    Measure("decision_s_p50", LABELS["decision_s_p50"], "s"),
    Measure("decision_s_p99", LABELS["decision_s_p99"], "s"),
    Measure("gap_max", LABELS["gap_max"], "%", 0.01),
)

JOB_MEASURES = (
    Measure("jct_s", "JCT", "min", 60.0),
    Measure("wait_s", "WT", "min", 60.0),
    Measure("latency_ratio", "LR"),
    Measure("ftf_rho", "FTF ρ"),
)
"""measures for comparing a job with itself under another policy; fields of `JobResult`"""

TERMS = {
    "JCT": "**JCT**, job completion time: from submission to completion",
    "WT": "**WT**, waiting time: not running, being measured and started included",
    "LR": "**LR**, latency ratio: how long a job waited, divided by how long it was expected to run",
    "frag": "**frag**, fragments: GPUs that a plan leaves idle while a job that could run waits",
    "ρ": "**FTF ρ**, finish-time fairness: JCT, divided by the time the job would have taken alone on its "
    "equal share of the cluster; above 1 it was worse off than with that share",
    "Jain": "**Jain index** of ρ: 1 if all jobs fare alike, 1/n if one of n has everything",
    "throughput": "**throughput**: samples/s of all jobs, each in units of its own mean speed on one GPU",
    "lost work": "**lost work**: GPU time spent on checkpoints and restores, or done twice",
    "decision": "**decision**: from the first look at the cluster to the plan",
    "gap": "**gap**: how far a plan can be from the best one, proven",
}
"""abbreviations in the headings of tables"""


def explained(headings: Iterable[str], *, but: Iterable[str] = ()) -> str:
    """A list of the terms in some headings, but for those in others."""
    here, before = " ".join(headings), " ".join(but)
    return "\n".join(f"- {said}" for term, said in TERMS.items() if term in here and term not in before)


def figure(value: float | None, *, signed: bool = False) -> str:
    """A value with three digits."""
    if value is None:
        return "–"
    if abs(value) < RESOLUTION:
        return "0"
    sign = "+" if signed else ""
    if abs(value) >= 99.95:  # noqa: PLR2004 - where three digits are whole
        return f"{value:{sign},.0f}"
    return f"{value:{sign}.2g}" if abs(value) < 0.1 else f"{value:{sign}.3g}"  # noqa: PLR2004 - as above


def says_little(summary: Summary, *, signed: bool = False) -> bool:
    """Whether the interval is wider than half of the figure or, of a difference, contains 0."""
    if summary.half_width is None or summary.half_width < RESOLUTION:
        return False
    return summary.half_width > abs(summary.mean) * (1.0 if signed else 0.5)


def spread(summary: Summary | None, scale: float = 1.0, *, signed: bool = False, marked: bool = True) -> str:
    """Mean ± half the 95 % interval; `marked`: with a ? if that says little."""
    if summary is None:
        return "–"
    mean = figure(summary.mean / scale, signed=signed)
    if summary.half_width is None:
        return mean
    mark = " ?" if marked and says_little(summary, signed=signed) else ""
    return f"{mean} ± {figure(summary.half_width / scale)}{mark}"
