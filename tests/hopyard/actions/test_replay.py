import pytest
from msgspec.structs import replace

from hopyard.actions import replay as replaying
from hopyard.actions.replay import Replayed, ReplaySpec, run_replay
from hopyard.api.client import ApiRefusal
from hopyard.failures import Invalid, Unreachable
from loadgen.scenarios import arrivals, load_scenario
from schemas.ids import JobId
from schemas.views import Submitted
from services.admission.problems import forgotten
from shared.domain.states import JobState
from tests.hopyard.cli_builders import job_view, status_view
from tests.hopyard.cli_server import CannedApi, canned_api

ARRIVALS = arrivals(load_scenario("tiny"))[:3]


async def replayed(
    api: CannedApi, *, wait: bool = False, speed: float = 100_000.0, key: str = "", first: int = 1
) -> tuple[Replayed, list[str]]:
    """The result of a replay, and the lines it printed."""
    lines: list[str] = []
    spec = ReplaySpec(api=api.url, arrivals=ARRIVALS, wait=wait, key=key, first=first)
    api.says("GET /v1/status", status_view(speed=speed))
    return await run_replay(spec, lines.append), lines


def submitted(job: str = "job-1") -> Submitted:
    return Submitted(job_id=JobId(job), created=True)


def keys_of(api: CannedApi) -> list[str]:
    """Idempotency keys of the submissions, in their order."""
    return [headers["Idempotency-Key"] for name, _, headers, _ in api.requests if name == "POST /v1/jobs"]


async def test_every_job_has_a_line_with_its_time_its_number_and_its_id() -> None:
    with canned_api() as api:
        api.says("POST /v1/jobs", submitted("job-1"), submitted("job-2"), submitted("job-3"))
        _, (where, *lines) = await replayed(api)
        key = keys_of(api)[0].removesuffix("-1")
    assert where == f"replaying on the cluster at {api.url}, --key {key}"
    assert [line.split()[-3:] for line in lines] == [
        [f"{number}/3", arrival.job.name, f"job-{number}"] for number, arrival in enumerate(ARRIVALS, 1)
    ]


async def test_every_job_has_an_idempotency_key_of_its_own_and_so_has_every_replay() -> None:
    with canned_api() as api:
        api.says("POST /v1/jobs", submitted())
        await replayed(api)
        await replayed(api)
    assert len(set(keys_of(api))) == 6


async def test_an_api_that_comes_back_gets_the_same_key_again() -> None:
    with canned_api() as api:
        api.refuses("POST /v1/jobs", 503, "starting")
        api.answers["POST /v1/jobs"] += [(201, b'{"job_id":"job-1","created":true}')]
        done, _ = await replayed(api)
    keys = keys_of(api)
    assert done.submitted == 3
    assert keys[0] == keys[1] != keys[2]


async def test_an_api_that_stays_away_ends_a_replay_with_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was given up after half a minute, and nothing said which jobs there were."""
    monkeypatch.setattr(replaying, "LONG_LIMIT_S", 0.0)
    with canned_api() as api:
        api.refuses("POST /v1/jobs", 503, "starting")
        api.answers["POST /v1/jobs"].insert(0, (201, b'{"job_id":"job-1","created":true}'))
        with pytest.raises(Unreachable, match=r"job 2 of 3 may be stored .* --key nightly --from 2$"):
            await replayed(api, key="nightly")
        api.says("POST /v1/jobs", submitted())
        done, lines = await replayed(api, key="nightly", first=2)
    assert done.submitted == 2
    assert lines[1].split()[:2] == ["0s", "2/3"]
    assert list(dict.fromkeys(keys_of(api))) == ["nightly-1", "nightly-2", "nightly-3"]


async def test_a_replay_begins_at_a_job_that_there_is() -> None:
    with canned_api() as api, pytest.raises(Invalid, match="--from 4: there are 3 jobs"):
        await replayed(api, first=4)


@pytest.mark.parametrize("key", ["ünï", "two\nlines", "k" * 199])
async def test_a_key_that_no_job_could_have_is_found_before_any_is_sent(key: str) -> None:
    """Each job was sent, and refused in its turn; of 199 letters, with `-1` behind them, is no key."""
    with canned_api() as api, pytest.raises(Invalid, match=r"--key, .* 1 to 200 printable ASCII"):
        await replayed(api, key=key)
    assert api.requests == []


async def test_a_refused_job_is_printed_and_counted_and_the_others_are_submitted() -> None:
    with canned_api() as api:
        api.refuses("POST /v1/jobs", 422, "too large", field="$.gpus")
        api.answers["POST /v1/jobs"] += [(201, b'{"job_id":"job-1","created":true}')]
        done, lines = await replayed(api)
    assert (done.submitted, done.refused) == (2, 1)
    assert lines[1].endswith("refused: $.gpus: too large")


async def test_waiting_ends_with_the_last_job() -> None:
    running = job_view("job-1", state="running")
    with canned_api() as api:
        api.says("POST /v1/jobs", submitted())
        api.says("GET /v1/jobs/job-1", running, replace(running, state="completed"))
        done, _ = await replayed(api, wait=True)
    assert done.ended == {"completed": 3}


async def test_a_replay_keeps_pace_with_the_stacks_clock() -> None:
    with canned_api() as api:
        api.says("POST /v1/jobs", submitted())
        slow, _ = await replayed(api, speed=ARRIVALS[-1].at_s / 0.5)
    assert slow.wall_s >= 0.5


async def test_a_job_that_is_no_longer_kept_counts_by_the_state_in_the_refusal() -> None:
    with canned_api() as api:
        api.says("POST /v1/jobs", submitted())
        api.says("GET /v1/jobs/job-1", forgotten(JobId("job-1"), JobState.FAILED), status=410)
        done, _ = await replayed(api, wait=True)
        assert done.ended == {"failed": 3}
        api.refuses("GET /v1/jobs/job-1", 410, "of an earlier version, which does not say how it ended")
        with pytest.raises(ApiRefusal):
            await replayed(api, wait=True)
