"""From a job file to the job that is scheduled."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import GpuType
from schemas.jobs import CHOICES_MAX, GpuRange, JobFile, JobSpec, LearningRate, Workload
from shared.domain.demand import expand_demand, job_spec
from shared.domain.invalid_job import InvalidJob


def job_file(**fields: Any) -> JobFile:  # noqa: ANN401 - any field of the file
    workload = Workload(model="resnet-18", dataset="cifar-10", batch_size=64, dataset_samples=50_000)
    defaults: dict[str, Any] = {"name": "job", "workload": workload, "gpus": 1, "samples": 100.0}
    return JobFile(**{**defaults, **fields})


def test_one_count_is_a_rigid_job() -> None:
    assert expand_demand(4) == (4,)


def test_a_list_is_sorted_and_has_no_repetitions() -> None:
    assert expand_demand([8, 2, 8, 1]) == (1, 2, 8)


def test_bounds_expand_to_equal_intervals_and_stay() -> None:
    assert expand_demand(GpuRange(min=1, max=16, choices=4)) == (1, 6, 11, 16)


def test_more_choices_than_counts_give_every_count_once() -> None:
    assert expand_demand(GpuRange(min=2, max=5, choices=8)) == (2, 3, 4, 5)


def test_all_choices_are_every_count_up_to_a_limit() -> None:
    assert expand_demand(GpuRange(min=1, max=27, choices="all")) == tuple(range(1, 28))
    assert len(expand_demand(GpuRange(min=1, max=CHOICES_MAX, choices="all"))) == CHOICES_MAX
    with pytest.raises(InvalidJob, match=r"\$\.gpus\.choices: 4097 GPU counts, at most 4096"):
        expand_demand(GpuRange(min=1, max=CHOICES_MAX + 1, choices="all"))


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(InvalidJob, match=r"\$\.gpus\.max: 1 is below min 2"):
        expand_demand(GpuRange(min=2, max=1))


def test_one_choice_cannot_keep_two_bounds() -> None:
    with pytest.raises(InvalidJob, match=r"\$\.gpus\.choices"):
        expand_demand(GpuRange(min=1, max=2, choices=1))


@given(low=st.integers(1, 2000), extra=st.integers(0, 2000), choices=st.integers(min_value=2, max_value=64))
def test_an_expanded_range_is_ascending_bounded_and_keeps_both_bounds(
    low: int, extra: int, choices: int
) -> None:
    demand = expand_demand(GpuRange(min=low, max=low + extra, choices=choices))
    assert list(demand) == sorted(set(demand))
    assert (demand[0], demand[-1]) == (low, low + extra)
    assert len(demand) <= choices


def test_a_length_in_epochs_is_turned_into_samples() -> None:
    assert job_spec(job_file(samples=None, epochs=2.0)).samples == 100_000


def test_a_length_in_epochs_needs_the_size_of_one() -> None:
    workload = Workload(model="m", dataset="d", batch_size=1)
    with pytest.raises(InvalidJob, match=r"\$\.workload\.dataset_samples"):
        job_spec(job_file(samples=None, epochs=2.0, workload=workload))


@pytest.mark.parametrize(
    ("lengths", "field"),
    [({"samples": None}, r"\$\.samples"), ({"samples": 1.0, "epochs": 1.0}, r"\$\.epochs")],
)
def test_a_job_has_one_length(lengths: dict[str, float | None], field: str) -> None:
    with pytest.raises(InvalidJob, match=field):
        job_spec(job_file(**lengths))


@pytest.mark.parametrize("samples", [1e-320, 1e-300, 0.5, 1e19])
def test_a_length_is_one_sample_at_least(samples: float) -> None:
    """The figures of a stack divide by lengths: after a job of 1e-320 samples, `status` failed for good."""
    written = msgspec.json.encode(job_file(samples=samples))
    with pytest.raises(msgspec.ValidationError, match=r"\$\.samples"):
        msgspec.json.decode(written, type=JobFile)
    with pytest.raises(InvalidJob, match=r"\$\.epochs: .* samples in all: from 1 to 1e\+18"):
        job_spec(job_file(samples=None, epochs=samples / 50_000))


@pytest.mark.parametrize(("rule", "rate"), [("linear", 0.4), ("sqrt", 0.2), ("constant", 0.1)])
def test_the_learning_rate_follows_the_global_batch(rule: Any, rate: float) -> None:  # noqa: ANN401
    spec = job_spec(job_file(gpus=4, learning_rate=LearningRate(value=0.1, gpus=1, rule=rule)))
    assert spec.learning_rates == {4: pytest.approx(rate)}


def test_learning_rates_can_be_written_out() -> None:
    spec = job_spec(job_file(gpus=[1, 2], learning_rates={1: 0.1, 2: 0.15}))
    assert spec.learning_rates == {1: 0.1, 2: 0.15}


def test_learning_rates_can_be_written_out_for_a_whole_range() -> None:
    gpus = GpuRange(min=1, max=4, choices=2)
    spec = job_spec(job_file(gpus=gpus, learning_rates={1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}))
    assert spec.learning_rates == {1: 0.1, 4: 0.4}


@pytest.mark.parametrize("gpus", [2, [1, 2], GpuRange(min=1, max=2)])
@pytest.mark.parametrize("stray", [-3, 4])
def test_a_learning_rate_that_could_have_no_effect_is_refused(
    gpus: int | list[int] | GpuRange, stray: int
) -> None:
    rates = {1: 0.1, 2: 0.2, stray: 0.4}
    if gpus == 2:
        del rates[1]
    with pytest.raises(InvalidJob, match=f"a rate for {stray} GPUs"):
        job_spec(job_file(gpus=gpus, learning_rates=rates))


def test_a_count_without_a_learning_rate_is_refused() -> None:
    with pytest.raises(InvalidJob, match="no rate for 2 GPUs"):
        job_spec(job_file(gpus=[1, 2], learning_rates={1: 0.1}))


def test_a_rule_and_a_table_of_learning_rates_are_one_too_many() -> None:
    with pytest.raises(InvalidJob, match="not both"):
        job_spec(job_file(learning_rate=LearningRate(value=0.1), learning_rates={1: 0.1}))


def test_gpu_types_are_sorted_and_an_empty_list_means_any() -> None:
    types = [GpuType("v100"), GpuType("k80"), GpuType("v100")]
    assert job_spec(job_file(gpu_types=types)).gpu_types == ("k80", "v100")
    assert job_spec(job_file()).gpu_types == ()


def test_modes_are_sorted_and_include_lockstep_and_no_list_means_any() -> None:
    assert job_spec(job_file(modes=["relaxed", "forked"])).modes == ("forked", "lockstep", "relaxed")
    assert job_spec(job_file(modes=[])).modes == ("lockstep",)
    assert job_spec(job_file()).modes == ()
    with pytest.raises(InvalidJob, match=r"loose is not a mode; there are forked, lockstep, .*") as refused:
        job_spec(job_file(modes=["relaxed", "loose"]))
    assert refused.value.field == "$.modes[1]"


def test_a_command_is_words_or_a_line_for_the_shell() -> None:
    assert job_spec(job_file(command=["python", "train.py"])).command == ("python", "train.py")
    assert job_spec(job_file(command="python train.py | tee log")).command == (
        "sh", "-c", "python train.py | tee log",
    )  # fmt: skip
    assert job_spec(job_file()).command == ()


@pytest.mark.parametrize("field", ["model", "dataset", "optimizer", "code_version"])
def test_a_workload_has_no_control_characters_but_one_of_an_earlier_version_is_read(field: str) -> None:
    workload = msgspec.structs.replace(job_file().workload, **{field: "a\n\x1b[1A"})
    with pytest.raises(InvalidJob, match=rf"\$\.workload\.{field}: holds a control character"):
        job_spec(job_file(workload=workload))
    stored = msgspec.structs.replace(job_spec(job_file()), workload=workload)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=JobSpec) == stored
