"""The options of an experiment from the command line, and the folder that they name."""

from hashlib import blake2b
from pathlib import Path

import msgspec

from hopyard.lab.experiments.baselines import Contender
from hopyard.lab.runs.cache import read_by
from hopyard.lab.runs.trials import Overrides
from loadgen.scenarios import load_scenario
from schemas.scenarios import ScenarioFile, TraceWorkload

SCENARIO_HASH = "scenario hash"


def scenario_hash(scenario: ScenarioFile) -> str:
    """A digest of the scenario's contents, settings, trace, and of the files and plug-ins that they name.

    The trace's path does not count.
    """
    digest = blake2b(read_by(scenario, {}), digest_size=8)
    if isinstance(scenario.workload, TraceWorkload):
        digest.update(Path(scenario.workload.path).read_bytes())
        scenario = msgspec.structs.replace(
            scenario, workload=msgspec.structs.replace(scenario.workload, path="")
        )
    digest.update(msgspec.json.encode(scenario, order="deterministic"))
    return digest.hexdigest()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    scenario: ScenarioFile
    policies: tuple[Contender, ...]
    seeds: tuple[int, ...]
    given: Overrides = {}
    """settings of the shell and of its settings file, which the scenario has already"""
    quick: bool = False
    """small, to see that everything works"""
    full: bool = False
    """also make the costliest runs"""

    def about(self) -> dict[str, str]:
        """The options in words, for the report's foot."""
        return {
            "scenario": self.scenario.name,
            "policies": ", ".join(policy.label for policy in self.policies),
            "seeds": ", ".join(map(str, self.seeds)),
            SCENARIO_HASH: scenario_hash(self.scenario),
        }

    def folder(self) -> str:
        """A name that no other scenario, trace, settings, policies or seeds have."""
        more = (self.full,) if self.full else ()
        asked = (scenario_hash(self.scenario), self.policies, self.seeds, self.quick, *more)
        digest = blake2b(msgspec.json.encode(asked, order="deterministic"), digest_size=4)
        return f"{self.scenario.name}-{digest.hexdigest()}"

    def also(self, name: str) -> ScenarioFile:
        """Another scenario that ships with hopyard, with the same settings of the shell."""
        other = load_scenario(name)
        return msgspec.structs.replace(other, settings={**other.settings, **self.given})

    @property
    def traced(self) -> bool:
        return isinstance(self.scenario.workload, TraceWorkload)
