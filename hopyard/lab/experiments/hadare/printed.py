"""What HadarE's paper prints about its physical clusters, as data (arXiv 2503.10918, section VI)."""

from collections.abc import Mapping

GAINS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "cru_slots": {
        "hadare-aws": {"hadar": 1.20, "hadare": 1.56},
        "hadare-lab": {"hadar": 1.21, "hadare": 1.62},
    },
    "ttd_s": {
        "hadare-aws": {"hadar": 1.17, "hadare": 1.79},
        "hadare-lab": {"hadar": 1.16, "hadare": 2.12},
    },
    "jct_s_mean": {
        "hadare-aws": {"hadar": 1.17, "hadare": 2.23},
        "hadare-lab": {"hadar": 1.23, "hadare": 2.76},
    },
}
"""against Gavel, mean of the seven mixes, by measure (figures 8, 9 and 10)"""

M_5: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "hadare-aws": {
        "gavel": {"ttd_s": 4200.0, "jct_min": 1283.0, "jct_max": 3159.0},
        "hadar": {"ttd_s": 3900.0, "jct_min": 1210.0, "jct_max": 2918.0},
    },
    "hadare-lab": {"gavel": {"ttd_s": 3300.0}, "hadar": {"ttd_s": 2800.0}},
}
"""seconds, of mix M-5"""

BEST_SLOTS: Mapping[str, Mapping[str, Mapping[str, tuple[float, ...]]]] = {
    "hadare-aws": {
        "hadare": {
            **dict.fromkeys(("M-1", "M-3", "M-4", "M-5"), (90.0,)),
            **dict.fromkeys(("M-8", "M-10", "M-12"), (360.0,)),
        },
        "hadar": {
            **dict.fromkeys(("M-1", "M-4", "M-5", "M-8", "M-10", "M-12"), (90.0, 180.0)),
            "M-3": (360.0,),
        },
    },
    "hadare-lab": {
        policy: {
            **dict.fromkeys(("M-1", "M-3", "M-4"), (90.0,)),
            **dict.fromkeys(("M-5", "M-8", "M-10", "M-12"), (360.0,)),
        }
        for policy in ("hadar", "hadare")
    },
}
"""seconds of the slot with the highest CRU, by policy and mix (figures 11 and 12)"""
