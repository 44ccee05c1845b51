"""The figures that the Hops paper (SoCC '24) reports, as data, to show ours beside them.

By policy, then by measure; measures and units as in `measures`. Times are hours here, as printed.
"""

from collections.abc import Mapping

Reported = Mapping[str, Mapping[str, float]]
"""arm → measure → value in the unit that the measure is shown in"""

TABLE_3: Reported = {
    "hops": {
        "makespan_s": 9.51,
        "jct_s_mean": 3.20,
        "wt_s_mean": 0.95,
        "lr_max": 0.37,
        "fragments_mean": 0.15,
    },
    "sia": {
        "makespan_s": 11.68,
        "jct_s_mean": 4.41,
        "wt_s_mean": 1.47,
        "lr_max": 1.03,
        "fragments_mean": 5.89,
    },
    "gavel": {
        "makespan_s": 14.46,
        "jct_s_mean": 5.92,
        "wt_s_mean": 2.11,
        "lr_max": 1.31,
        "fragments_mean": 3.36,
    },
}
"""64 GPUs, 25 jobs within 2.5 h, the physical cluster"""

TABLE_4: Reported = {
    "hops": {
        "makespan_s": 10.48,
        "jct_s_mean": 2.24,
        "wt_s_mean": 0.87,
        "lr_max": 3.22,
        "fragments_mean": 0.45,
    },
    "sia": {
        "makespan_s": 12.36,
        "jct_s_mean": 3.79,
        "wt_s_mean": 1.68,
        "lr_max": 78.5,
        "fragments_mean": 56.0,
        "ftf_rho_max": 28.27,
    },
    "gavel": {
        "makespan_s": 15.42,
        "jct_s_mean": 4.04,
        "wt_s_mean": 2.24,
        "lr_max": 70.43,
        "fragments_mean": 18.0,
        "ftf_rho_max": 32.01,
    },
    "hops, priority ftf": {"ftf_rho_max": 2.15},
}
"""512 GPUs, 500 jobs at 100/h, simulation; ρ from section 4.4, there with λ = 2 for Hops"""

TABLES: Mapping[str, tuple[str, Reported]] = {
    "hops-64": ("Table 3", TABLE_3),
    "hops-512": ("Table 4", TABLE_4),
}
"""title and figures of the paper's table, by scenario"""

PRIORITIES: Mapping[str, tuple[str, Reported]] = {
    "hops-512": ("Figure 13", {"lr": {"lr_max": 3.0}}),
}
"""section 4.5: "a maximum job latency ratio of 3"; the others are said to exceed 80, without a number each"""

ARRIVAL_RATES = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)
"""jobs/h, section 4.6; the paper draws the mean JCT and prints no number"""

SOLVING: Mapping[str, str] = {
    "512 GPUs, gap 0.01": "the vast majority within 10 s; the gap proven is below 0.005 in most cases",
    "1000 GPUs, gap 0.05": "about 6 s",
    "1500 GPUs, gap 0.05": "about 17 s, a third of what a gap of 0.01 takes",
    "number of jobs": "time stops growing at about 1000 jobs, because of the service window",
}
"""section 4.7, with Gurobi"""

ACCURACY_STABLE = 0.95
"""section 4.1: stable data loading is predicted with an accuracy above this"""
