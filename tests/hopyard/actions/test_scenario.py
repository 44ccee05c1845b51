from pathlib import Path

import pytest

from hopyard.actions.scenario import chosen_scenario, named_columns
from hopyard.failures import Invalid
from schemas.scenarios import TraceColumns


def test_columns_are_typed_in_one_word() -> None:
    named = named_columns("submit=Submit Time, gpus=n,seconds=took:ms")
    assert named == TraceColumns(submit="Submit Time", gpus="n", seconds="took:ms")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("submit=a", "name the columns for submit, gpus, optionally for seconds, model, user"),
        ("submit=a,gpus=b,length=c", "name the columns for submit, gpus"),
        ("submit=,gpus=b", "name the columns for submit, gpus"),
        ("", "submit=date,gpus=n"),
        ("submit=a,gpus=b, submit=c", "submit is named 2 times"),
    ],
)
def test_an_unknown_column_is_refused_with_the_choices(text: str, complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        named_columns(text)


def test_columns_without_a_trace_are_refused() -> None:
    with pytest.raises(Invalid, match="--columns needs a --trace, whose columns it names"):
        chosen_scenario("tiny", columns="submit=a,gpus=b")


def test_a_fault_of_a_trace_is_found_before_anything_runs(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("a,b\n1,none\n")
    with pytest.raises(Invalid, match=r"jobs\.csv:2: b is not a number: none"):
        chosen_scenario("tiny", trace, "submit=a,gpus=b")


def test_how_many_jobs_train_another_model_than_their_trace_says_is_printed(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("a,b,m\n1,1,vgg11\n2,1,vgg16\n3,1,vgg16\n4,1,own\n5,1,\n")
    printed: list[str] = []
    chosen_scenario("tiny", trace, "submit=a,gpus=b,model=m", printed.append)
    assert printed == ["3 of 5 jobs train another model than the trace says: vgg16 (2), own (1)"]


def test_with_a_trace_a_scenario_does_not_claim_its_own_jobs(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("a,b\n1,2\n")
    assert chosen_scenario("tiny", trace, "submit=a,gpus=b").about == "its cluster, jobs of jobs.csv"
