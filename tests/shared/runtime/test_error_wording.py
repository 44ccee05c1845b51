"""Complaints in words, for everything that users write."""

import msgspec
import pytest

from schemas.jobs import JobFile
from schemas.scenarios import ScenarioFile
from shared.runtime.files import InvalidFile, parse

JOB = {
    "name": "a",
    "workload": {"model": "m", "dataset": "d", "batch_size": 1},
    "gpus": 1,
    "samples": 1.0,
}
SCENARIO = {"name": "a", "cluster": "tiny", "workload": {"arrivals": "poisson", "count": 1, "mix": "short"}}


def refused(value: object, kind: type) -> str:
    with pytest.raises(InvalidFile) as caught:
        parse(msgspec.json.encode(value).decode(), "file.json", kind)
    return f"{caught.value.field}: {caught.value.reason}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"gpuss": 1},
            "$.gpuss: there is no such field; did you mean gpus?; there are name, workload",
        ),
        ({"workload": {"modle": "m"}}, "$.workload.modle: there is no such field; did you mean model?"),
        ({"workload": {"model": "m"}}, "$.workload.dataset: this field is missing"),
        ({"name": "Not this"}, "$.name: it must be up to 63 lower-case letters, digits and dashes"),
        ({"gpus": "many"}, "$.gpus: it must be a whole number, a mapping or a list, but is text"),
        ({"gpus": 0}, "$.gpus: it must be a whole number >= 1"),
        ({"gpus": [1, -1]}, "$.gpus[1]: it must be a whole number >= 1"),
        (
            {"learning_rate": {"value": 1.0, "rule": "linar"}},
            "$.learning_rate.rule: 'linar' is none of constant, linear, sqrt; did you mean linear?",
        ),
        (
            {"gpus": {"min": 1, "max": 4, "choices": "x"}},
            "$.gpus.choices: it must be a whole number or all, but is 'x'",
        ),
        ({"priority": "high"}, "$.priority: it must be a number, but is text"),
        ({"gpu_types": []}, "$.gpu_types: it must be a list of length >= 1"),
    ],
)
def test_errors_of_a_job_file(change: dict[str, object], said: str) -> None:
    assert refused(JOB | change, JobFile).startswith(said)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (
            {"arrivals": "poison"},
            "$.workload.arrivals: 'poison' is none of poisson, trace, listed",
        ),
        (
            {"arrivals": "poisson", "cuont": 3},
            "$.workload.cuont: there is no such field; did you mean count?",
        ),
        (
            {"arrivals": "poisson", "hours": [3, 10]},
            "$.workload.hours: there is no such field; there are count, rate_per_hour, mix, gpu_hours_mean",
        ),
        (
            {"arrivals": "listed", "jobs": [{"at_s": 0.0, "job": {"nam": "a"}}]},
            "$.workload.jobs[0].job.nam: there is no such field; did you mean name?",
        ),
    ],
)
def test_errors_of_a_scenario_file(workload: dict[str, object], said: str) -> None:
    assert refused(SCENARIO | {"workload": workload}, ScenarioFile).startswith(said)


def test_a_struct_without_fields_says_that_there_are_none() -> None:
    class Nothing(msgspec.Struct, forbid_unknown_fields=True):
        pass

    assert refused({"x": 1}, Nothing) == "$.x: there is no such field; there are none"
