"""What the paper reports (JPS, section VI), as data, and what its equations give on the reconstructed speeds.

Seconds of the mean completion time, and how far it is above the lowest. Where the paper prints only a share,
there are no seconds.
"""

from collections.abc import Mapping

import msgspec


class Printed(msgspec.Struct, frozen=True):
    jct_s: float | None = None
    above: float | None = None
    """how far above the lowest, as a share of it"""


BEST_15 = 3948.9
"""seconds, with ID 94 and by exhaustive search, 15 GPUs"""

ONCE_15: Mapping[str, Printed] = {
    "exhaustive": Printed(BEST_15, 0.0),
    "has": Printed(BEST_15, 0.0),
    "jps, N = 20": Printed(above=0.0295),
    "jps, N = 60": Printed(3970.2, 0.0054),
    "jps, N = 60, β = 0": Printed(4301.35, 4301.35 / BEST_15 - 1.0),
    "optimus-lb": Printed(4545.2, 0.151),
    "optimus": Printed(above=0.4209),
}
"""figures 9 to 14; `optimus` is the first value of figure 14"""

ONCE_30: Mapping[str, Printed] = {
    "exhaustive": Printed(above=0.0),
    "has": Printed(above=0.0),
    "jps, N = 20": Printed(above=0.0510),
    "jps, N = 60": Printed(above=0.0204),
    "optimus-lb": Printed(above=0.151),
}

ONCE_300: Mapping[str, Printed] = {
    "jps, N = 40": Printed(68.86 + 201.30),
    "optimus-lb": Printed(69.13 + 217.96),
}
"""seconds of communication and of computing"""

HETEROGENEITY: Mapping[int, float] = {3: 0.0, 5: 0.0, 7: 0.0, 9: 0.0128}
"""V100 among 15 GPUs, five of them P100 → HAS above the lowest"""

ERRORS_30: Mapping[str, float] = {"has": 0.0375, "jps, N = 60": 0.043}
"""figure 15: above the lowest, with speeds known to ± 30 %"""

RESETS = {"mean completion time": (-0.4167, -0.1701), "makespan": (-0.4435, -0.2734)}
"""figure 17: change against deciding once; the paper does not name the policy"""

AGAINST_GAVEL = {"mean completion time": -0.212, "makespan": -0.713}
"""figure 18: HAS against Gavel with 5 GPUs per job"""

RECONSTRUCTED_15: Mapping[str, float] = {
    "exhaustive": 3949.4,
    "has": 3949.4,
    "jps, N = 20": 3949.4 * 1.0315,
    "jps, N = 60": 3949.4 * 1.0059,
    "jps, N = 60, β = 0": 4358.0,
    "optimus-lb": 3949.4 * 1.152,
}
"""s, by the paper's equations alone on the reconstructed speeds"""
