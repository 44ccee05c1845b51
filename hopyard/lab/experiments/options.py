"""What the command line chose for an experiment."""

import msgspec

from hopyard.lab.experiments.baselines import Contender
from schemas.scenarios import ScenarioFile, TraceWorkload


class Options(msgspec.Struct, frozen=True, kw_only=True):
    scenario: ScenarioFile
    policies: tuple[Contender, ...]
    seeds: tuple[int, ...]
    quick: bool = False
    """small, to see that everything works"""

    @property
    def traced(self) -> bool:
        return isinstance(self.scenario.workload, TraceWorkload)
