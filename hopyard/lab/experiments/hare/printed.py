"""The numbers that Hare's paper prints about its figures, as data (IEEE TCC 12(4), 2024, section VI).

All its figures are pictures, and all numbers in its text are here.
"""

from collections.abc import Mapping

WITHIN_25_MIN: Mapping[str, float] = {"hare": 0.905, "allox": 0.667, "sched-homo": 0.565}
"""share of jobs that end within 25 min on the testbed (figure 15)"""

OTHERS_OVER_HARE = "1.91 to 4.05"
"""weighted completion time on the testbed (figure 14: Hare −47.6 to −75.3 %)"""
ALLOX_OVER_HARE = 2.0
"""weighted completion time: about this, with any number of GPUs (figure 16) and any types (figure 18)"""
OTHERS_OVER_HARE_300 = "2.20 to 5.13"
"""weighted completion time with 300 jobs (figure 17: −54.6 to −80.5 %)"""
BY_NETWORK = -0.312
"""change of Hare's weighted completion time from 10 to 25 Gb/s (figure 20)"""

OVER_HLAS: Mapping[str, float] = {"tiresias": 2.04}
"""mean completion time over that of HLAS, online (figure 22)"""
OVER_HLAS_300 = "1.69 and 1.1, of two of four policies that are not named"
"""mean completion time with 300 jobs (figure 23)"""
HLAS_OVER_HLAS_P = 1.42
"""mean completion time (figure 26)"""
