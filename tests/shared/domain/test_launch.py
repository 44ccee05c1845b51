"""How a job's processes are started: what a job file may ask for, and what is refused, in one line each."""

import textwrap
from typing import Any

import pytest

from schemas.jobs import Checkpoint, JobFile, JobSpec, Workload
from shared.domain.demand import job_spec
from shared.domain.invalid_job import InvalidJob
from shared.runtime.files import InvalidFile, parse

JOB = """\
name: resnet
workload: {model: resnet50, dataset: imagenet, batch_size: 128}
gpus: [1, 2, 4]
samples: 100000
"""


def written(more: str) -> JobSpec:
    return job_spec(parse(JOB + textwrap.dedent(more), "job.yaml", JobFile))


def of(**fields: Any) -> JobSpec:  # noqa: ANN401 - any field of the file
    workload = Workload(model="m", dataset="d", batch_size=1)
    return job_spec(JobFile(name="job", workload=workload, gpus=1, samples=1.0, **fields))


def refusal(more: str) -> str:
    with pytest.raises((InvalidFile, InvalidJob)) as caught:
        written(more)
    text = str(caught.value)
    assert "\n" not in text, "a refusal is one line"
    assert "regex" not in text, "words, not expressions"
    assert len(text) < 500, "a refusal does not repeat what is refused"
    return text


def test_a_job_file_says_how_its_processes_are_started() -> None:
    spec = written("""\
        command: [python, train.py]
        working_directory: /data/resnet
        environment: {DATA: /data/imagenet, OMP_NUM_THREADS: "4"}
        image: pytorch/pytorch:2.6.0@sha256:0a1b
        cpus: 4
        memory: 8GiB
        time_limit: 2h
        retries: 2
        preemptible: false
        checkpoint: {folder: /data/checkpoints, interval_s: 60, grace_s: 90}
        """)
    assert spec.command == ("python", "train.py")
    assert spec.working_directory == "/data/resnet"
    assert spec.environment == {"DATA": "/data/imagenet", "OMP_NUM_THREADS": "4"}
    assert (spec.image, spec.cpus, spec.memory) == ("pytorch/pytorch:2.6.0@sha256:0a1b", 4.0, 8 * 2**30)
    assert (spec.time_limit_s, spec.retries, spec.preemptible) == (7200.0, 2, False)
    checkpoints = (spec.checkpoint_folder, spec.checkpoint_interval_s, spec.grace_s)
    assert checkpoints == ("/data/checkpoints", 60.0, 90.0)


def test_a_job_file_without_limits_has_the_defaults() -> None:
    spec = written("")
    assert (spec.command, spec.working_directory, spec.environment, spec.image) == ((), "", {}, "")
    assert (spec.cpus, spec.memory, spec.time_limit_s) == (None, None, None)
    assert (spec.retries, spec.preemptible, spec.grace_s) == (0, True, 30.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((text, 5400.0) for text in ("5400", "90m", "1.5h", "01:30:00", "1:30:00", "'1:30:00'", "90:00")),
        ("1d", 86_400.0),
    ],
)
def test_a_time_limit_is_seconds_or_a_length_of_time(text: str, seconds: float) -> None:
    assert written(f"time_limit: {text}").time_limit_s == seconds


@pytest.mark.parametrize(
    ("text", "amount"), [("500MB", 5e8), ("8GiB", 8 * 2**30), ("8000000000", 8e9), ("8e9", 8e9)]
)
def test_memory_is_bytes_or_an_amount(text: str, amount: float) -> None:
    assert written(f"memory: {text}").memory == amount


TIME_LIMIT = "seconds, or a length of time such as 90m, 2h, 1.5d or 02:30:00"
MEMORY = "bytes, or an amount such as 500MB, 8GB or 8GiB"
KEPT = "the agent sets this variable, or keeps it from jobs"
LINES = "holds a control character; put text of several lines into a file"
A_FOLDER = "an absolute path without .. and without control characters"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("time_limit: tomorrow", f"job.yaml:5: $.time_limit: it must be {TIME_LIMIT}"),
        ("time_limit: 2 hours", f"job.yaml:5: $.time_limit: it must be {TIME_LIMIT}"),
        ('time_limit: "2h\\n"', f"job.yaml:5: $.time_limit: it must be {TIME_LIMIT}"),
        ('time_limit: "99:99:99"', f"job.yaml:5: $.time_limit: it must be {TIME_LIMIT}"),
        ("time_limit: 1:60:00", f"job.yaml:5: $.time_limit: it must be {TIME_LIMIT}"),
        ("time_limit: 90:60", f"job.yaml:5: $.time_limit: it must be {TIME_LIMIT}"),
        ("cpus: 12:30", "job.yaml:5: $.cpus: it must be a number or nothing, but is text"),
        ("time_limit: 0s", "$.time_limit: 0 seconds; it may be from 1 to 1e+08"),
        ("memory: 8G", f"job.yaml:5: $.memory: it must be {MEMORY}"),
        ("memory: 8", "$.memory: 8 bytes; it may be from 1e+06 to 1e+15"),
        ("working_directory: data", f"job.yaml:5: $.working_directory: it must be {A_FOLDER}"),
        ("working_directory: /data/../etc", f"job.yaml:5: $.working_directory: it must be {A_FOLDER}"),
        ('working_directory: "/data\\n/x"', f"job.yaml:5: $.working_directory: it must be {A_FOLDER}"),
        ('working_directory: "/data\\0"', f"job.yaml:5: $.working_directory: it must be {A_FOLDER}"),
        ("checkpoint: {folder: ../x}", f"job.yaml:5: $.checkpoint.folder: it must be {A_FOLDER}"),
        ("retries: -1", "job.yaml:5: $.retries: it must be a whole number >= 0"),
        ("cpus: 0", "job.yaml:5: $.cpus: it must be a number > 0.0"),
        ("preemptible: maybe", "job.yaml:5: $.preemptible: it must be true or false, but is text"),
        ("command: ''", "$.command: is empty"),
        ("command: ['']", "$.command[0]: is empty; it names the program"),
        ('command: [python, "a\\0b"]', "$.command[1]: holds a NUL, which no argument of a process can"),
        (
            "environment: {RANK: '0'}",
            f"$.environment.RANK: {KEPT}",
        ),
        (
            "environment: {HOPYARD_API_TOKEN: x}",
            f"$.environment.HOPYARD_API_TOKEN: {KEPT}",
        ),
        (
            "environment: {A: 4}",
            "job.yaml:5: $.environment.A: it must be text, but is a whole number; in quotes it is text",
        ),
        (
            "environment: {B: b, C: c, A: 4, D: 5, E: e}",
            "job.yaml:5: $.environment.A: it must be text, but is a whole number; in quotes it is text",
        ),
        (
            "learning_rates: {1: 0.1, 2: 0}",
            "job.yaml:5: $.learning_rates.2: it must be a number > 0.0",
        ),
        (
            "environment: {a-b: x}",
            "$.environment: 'a-b' is not a name of a variable: letters, digits and _, no digit first",
        ),
        (
            'environment: {"A=B\\nC": x}',
            r"$.environment: 'A=B\nC' is not a name of a variable: letters, digits and _, no digit first",
        ),
        (
            'environment: {A: "x\\ny"}',
            f"$.environment.A: {LINES}",
        ),
        (
            'environment: {A: "x\\0y"}',
            f"$.environment.A: {LINES}",
        ),
    ],
)
def test_invalid_launch_options_are_refused_in_words(more: str, text: str) -> None:
    assert refusal(more) == text


@pytest.mark.parametrize("image", ["--privileged", "a b", "a;b", '"a\\n"', "../x"])
def test_an_image_is_a_name_and_never_an_option(image: str) -> None:
    assert refusal(f"image: {image}").endswith(
        "it must be the name of a container's image, such as pytorch/pytorch:2.6.0"
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("work_directory: /x", "working_directory"),
        ("enviroment: {}", "environment"),
        ("timelimit: 3", "time_limit"),
        ("checkpoint: {intervall_s: 3}", "interval_s"),
    ],
)
def test_a_field_that_is_misspelt_is_guessed(wrong: str, right: str) -> None:
    assert f"did you mean {right}?" in refusal(wrong)


def test_an_environment_of_a_megabyte_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"^\$\.environment: 1,000,001 bytes; it may have 65,536$"):
        of(environment={"A": "x" * 1_000_000})
    with pytest.raises(InvalidJob, match=r"^\$\.environment: "):
        of(environment={f"A{number}": "" for number in range(100_000)})


def test_a_name_ends_with_its_last_character() -> None:
    """In Python `$` also stands before a newline at the end."""
    assert "lower-case letters" in refusal('project: "p\\n"')
    assert "lower-case letters" in refusal("project: |\n  p\n")


def test_a_checkpoint_needs_only_its_folder() -> None:
    spec = of(checkpoint=Checkpoint(folder="/shared/c"))
    assert (spec.checkpoint_folder, spec.checkpoint_interval_s) == ("/shared/c", 600.0)
