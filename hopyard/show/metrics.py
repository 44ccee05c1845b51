"""The metrics of a run in words: what each is called on the screen, and how its value reads. Pure."""

from hopyard.show.units import duration, number, share

LABELS = {
    "makespan_s": "makespan",
    "ttd_s": "makespan, all jobs at once",
    "jct_s_mean": "mean JCT",
    "jct_s_p50": "JCT p50",
    "jct_s_p95": "JCT p95",
    "jct_s_p99": "JCT p99",
    "jct_s_max": "JCT max",
    "weighted_jct_s": "Σ priority · JCT",
    "wt_s_mean": "mean waiting time",
    "lr_mean": "mean latency ratio",
    "lr_max": "largest latency ratio",
    "raqlr": "recent latency ratio",
    "fragments_mean": "mean GPUs in fragments",
    "ftf_rho_mean": "mean FTF ρ",
    "ftf_rho_max": "largest FTF ρ",
    "ftf_unfair_share": "jobs with ρ > 1",
    "jain_index": "Jain index",
    "jain_equal": "Jain index, equal shares",
    "gru": "GPUs busy",
    "cru": "nodes busy",
    "cru_slots": "nodes busy by rounds",
    "cluster_throughput_mean": "mean throughput in GPUs",
    "restarts": "restarts",
    "switch_s_mean": "mean time to resume",
    "lost_work_gpu_s": "lost work, GPU time",
    "merges": "merges of copies",
    "merge_steps_mean": "mean steps between merges",
    "merge_steps_max": "most steps between merges",
    "copy_share_max": "largest share of a copy",
    "decision_s_p50": "decision p50",
    "decision_s_p99": "decision p99",
    "gap_max": "largest gap",
}
SHARES = frozenset({"ftf_unfair_share", "gru", "cru", "cru_slots", "copy_share_max", "gap_max"})
"""metrics that are shown in per cent"""


def in_words(name: str) -> str:
    """The label of a metric; for a metric of another version, its name with spaces."""
    return LABELS.get(name) or name.removesuffix("_s").replace("_s_", "_").replace("_", " ")


def measure(name: str, value: float | None) -> str:
    """A metric's value: a share in per cent, `_s` in seconds, everything else a plain number."""
    if name in SHARES:
        return share(value)
    return duration(value) if name.endswith("_s") or "_s_" in name else number(value)
