"""Access to the API: every operation, attempted by every caller that may not use it."""

import asyncio
import itertools
import time
from pathlib import Path

import msgspec
import pytest
from multidict import CIMultiDict
from structlog.testing import capture_logs

from schemas.base import Message
from schemas.events import (
    JobCancelled,
    JobHeld,
    JobPriorityChanged,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    PolicyChosen,
)
from schemas.ids import JobId, NodeId
from schemas.jobs import JobSpec
from schemas.questions import ShowJob
from schemas.settings import Settings
from schemas.tokens import Identity, Role
from schemas.views import Problem, Submitted
from services.admission.core import Admission
from services.admission.http.authorization import FAILURES_MAX, Failures, check_exposure
from services.admission.http.operations import OPERATIONS, Operation
from services.admission.questions import Cancel, Submit
from tests.hopyard.cli_builders import job_view
from tests.services.admission.admission_world import (
    Driver,
    Served,
    job_body,
    job_file,
    shown,
)
from tests.services.admission.guarded_api import HOUR_S, guarded

BODIES = {"submit_job": job_body(), "set_policy": {"policy": "fifo"}, "set_priority": {"priority": 2}}


async def status_of(api: Served, operation: Operation, headers: dict[str, str]) -> int:
    path = operation.path.replace("{id}", "n-0")
    body = BODIES.get(operation.name)
    query = {"newest": "1"} if operation.name == "list_events" else {}
    async with api.client.request(
        operation.method, path, json=body, headers={"Authorization": ""} | headers, params=query
    ) as response:
        if response.status in {401, 403}:
            problem = msgspec.json.decode(await response.read(), type=Problem)
            assert problem.status == response.status
        return response.status


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_no_operation_is_allowed_without_a_valid_token(operation: Operation, tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        true = tokens.make(Role.OPERATOR, "ada")
        expired = tokens.make(Role.OPERATOR, "ada", expires_s=-1.0)
        mark, token_id, secret = true.split("_", 2)
        wrong = {
            "none": {},
            "empty": shown(""),
            "expired": shown(expired),
            "of no id": shown(f"{mark}_00000000_{secret}"),
            "of another secret": shown(f"{mark}_{token_id}_{secret[:-1]}"),
            "an id alone": shown(token_id),
            "by another scheme": {"Authorization": f"Basic {true}"},
            "bare": {"Authorization": true},
            "long": shown(true + "x" * 5_000),
            "no ASCII": {"Authorization": "Bearer \xe9"},
        }
        for what, headers in wrong.items():
            assert await status_of(api, operation, headers) == 401, what
        tokens.revoke_all()
        assert await status_of(api, operation, shown(true)) == 401, "revoked"
        assert api.driver.published == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_an_operation_is_for_its_role_and_those_above(operation: Operation, tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        for role in Role:
            before = len(api.driver.published)
            status = await status_of(api, operation, shown(tokens.make(role, "ada")))
            if role.covers(operation.role):
                assert status not in {401, 403}, role
            else:
                assert status == 403, role
                assert len(api.driver.published) == before, role


def test_viewers_may_change_nothing() -> None:
    changing = {each.name for each in OPERATIONS if each.method != "GET"}
    assert changing == {each.name for each in OPERATIONS if each.role is not Role.VIEWER}


async def test_a_submitter_controls_only_its_own_jobs(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        ada, bob = (shown(tokens.make(Role.SUBMITTER, user)) for user in ("ada", "bob"))
        body, _ = await api.call("POST", "/v1/jobs", 201, json=job_body(), headers=ada)
        job = body["job_id"]
        spec: JobSpec = next(fact.spec for fact in api.driver.published if isinstance(fact, JobSubmitted))
        assert spec.user == "ada", "the user of a job is whose token it was"
        problem, _ = await api.call("POST", "/v1/jobs", 403, json=job_body(user="root"), headers=ada)
        assert problem["field"] == "$.user"
        await api.call("DELETE", f"/v1/jobs/{job}", 403, headers=bob)
        await api.call("PUT", f"/v1/jobs/{job}/priority", 403, json={"priority": 2}, headers=bob)
        for method in ("POST", "DELETE"):
            await api.call(method, f"/v1/jobs/{job}/hold", 403, headers=bob)
        assert len(api.driver.published) == 1
        for method in ("POST", "DELETE"):
            await api.call(method, f"/v1/jobs/{job}/hold", 202, headers=ada)
        await api.call("PUT", f"/v1/jobs/{job}/priority", 202, json={"priority": 2}, headers=ada)
        await api.call("DELETE", f"/v1/jobs/{job}", 202, headers=ada)


async def test_an_operator_submits_and_cancels_jobs_of_other_users(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        operator = shown(tokens.make(Role.OPERATOR, "olga"))
        body, _ = await api.call("POST", "/v1/jobs", 201, json=job_body(user="bob"), headers=operator)
        await api.call("DELETE", f"/v1/jobs/{body['job_id']}", 202, headers=operator)


async def test_a_token_of_a_project_is_for_its_jobs_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        ada = shown(tokens.make(Role.SUBMITTER, "ada", project="vision"))
        problem, _ = await api.call("POST", "/v1/jobs", 403, json=job_body(), headers=ada)
        assert problem["field"] == "$.project"
        await api.call("POST", "/v1/jobs", 201, json=job_body(project="vision"), headers=ada)


async def test_a_token_of_a_project_cancels_its_jobs_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        vision = shown(tokens.make(Role.SUBMITTER, "ada", project="vision"))
        speech = shown(tokens.make(Role.SUBMITTER, "ada", project="speech"))
        body, _ = await api.call("POST", "/v1/jobs", 201, json=job_body(project="vision"), headers=vision)
        problem, _ = await api.call("DELETE", f"/v1/jobs/{body['job_id']}", 403, headers=speech)
        assert "the project speech" in problem["detail"]
        operator = shown(tokens.make(Role.OPERATOR, "olga", project="speech"))
        await api.call("DELETE", f"/v1/jobs/{body['job_id']}", 403, headers=operator)
        assert not any(isinstance(fact, JobCancelled) for fact in api.driver.published)
        await api.call("DELETE", f"/v1/jobs/{body['job_id']}", 202, headers=vision)


@pytest.mark.parametrize("held", [False, True], ids=["stored", "in flight"])
def test_idempotency_keys_are_per_user(*, held: bool) -> None:
    """A caller who guessed a key learnt of another's job, and could not submit its own."""
    ada, later, bob = (
        Identity(role=Role.SUBMITTER, user=user, token_id=token)
        for user, token in (("ada", "1"), ("ada", "2"), ("bob", "3"))
    )
    driver = Driver()
    driver.held = held

    def submit(caller: Identity, **job: object) -> Message:
        return driver.ask(Submit(job=job_file(**job), key="nightly", caller=caller))

    first = submit(ada)
    assert first == Submitted(job_id=JobId("train-1"), created=True)
    assert submit(bob) == Submitted(job_id=JobId("train-2"), created=True)
    assert submit(later) == Submitted(job_id=JobId("train-1"), created=False), "with another token of hers"
    assert submit(bob) == Submitted(job_id=JobId("train-2"), created=False)
    refused = submit(bob, user="ada")
    assert isinstance(refused, Problem)
    assert refused.status == 403


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/events?follow=true", b""),
        (
            "/v1/jobs/train-1/output?follow=true",
            b'{"problem":"cut off before the end of the job; ask again"}\n',
        ),
    ],
)
@pytest.mark.parametrize("how", ["revoked", "expired", "of less"])
async def test_a_stream_ends_with_the_token_that_opened_it(
    how: str, path: str, last: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.admission.http.api.JUDGED_AGAIN_REAL_S", 0.0)
    monkeypatch.setattr("services.admission.http.api.HUNG_UP_POLL_REAL_S", 0.05)
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.05)
    now = [time.time()]
    monkeypatch.setattr("services.admission.http.authorization.time.time", lambda: now[0])
    async with guarded(tmp_path) as (api, tokens):
        api.views[ShowJob] = job_view("train-1", state="running", nodes=())
        token, stays = tokens.make(Role.VIEWER, "ada"), tokens.make(Role.VIEWER, "bob", expires_s=9e9)
        async with (
            api.client.get(path, headers=shown(token)) as ends,
            api.client.get(path, headers=shown(stays)) as goes_on,
        ):
            if how == "expired":
                now[0] += 2 * HOUR_S
            else:
                tokens.change(token, project="another" if how == "of less" else None)
            async with asyncio.timeout(120.0):
                assert await ends.read() == last
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await goes_on.read()


async def test_the_scheme_of_a_token_may_be_written_in_any_case(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        token = tokens.make(Role.VIEWER)
        for scheme in ("Bearer", "bearer", "BEARER"):
            await api.call("GET", "/v1/policy", headers={"Authorization": f"{scheme} {token}"})


async def test_a_request_with_two_tokens_is_refused(tmp_path: Path) -> None:
    """A proxy in front may have judged by the other."""
    async with guarded(tmp_path) as (api, tokens):
        own = f"Bearer {tokens.make(Role.VIEWER)}"
        for both in ((own, "Bearer x"), ("Bearer x", own), (own, own)):
            headers = CIMultiDict([("Authorization", each) for each in both])
            async with api.client.get("/v1/policy", headers=headers) as answer:
                assert answer.status == 401


async def test_a_refused_call_is_logged_without_the_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        tokens.make(Role.VIEWER)
        with capture_logs() as logs:
            for _ in range(2 * FAILURES_MAX):
                await api.call("GET", "/v1/policy", 401, headers={"Authorization": ""})
            await api.call("GET", "/v1/policy", 401, headers=shown("hop_00000000_guess"))
    said = [(each["event"], each["operation"]) for each in logs]
    assert said == [("no token", "show_policy")] * FAILURES_MAX + [("wrong token", "show_policy")]
    assert "guess" not in str(logs)


async def test_every_change_records_its_author_in_the_event_log(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        token = tokens.make(Role.OPERATOR, "olga")
        olga, by = shown(token), f"olga/{token.split('_')[1]}"
        job = (await api.call("POST", "/v1/jobs", 201, json=job_body(), headers=olga))[0]["job_id"]
        await api.call("PUT", f"/v1/jobs/{job}/priority", 202, json={"priority": 2}, headers=olga)
        await api.call("POST", f"/v1/jobs/{job}/hold", 202, headers=olga)
        await api.call("DELETE", f"/v1/jobs/{job}/hold", 202, headers=olga)
        await api.call("DELETE", f"/v1/jobs/{job}", 202, headers=olga)
        await api.call("POST", "/v1/nodes/n-0/drain", 202, headers=olga)
        await api.call("DELETE", "/v1/nodes/n-0/drain", 202, headers=olga)
        api.driver.fold(NodeLost(at=2.0, node_id=NodeId("n-0")))
        await api.call("DELETE", "/v1/nodes/n-0", 202, headers=olga)
        await api.call("PUT", "/v1/policy", 200, json={"policy": "fifo"}, headers=olga)
        made = api.driver.published
        of_jobs = [JobSubmitted, JobPriorityChanged, JobHeld, JobReleased, JobCancelled]
        kinds = [*of_jobs, NodeDrained, NodeRestored, NodeRemoved, PolicyChosen]
        assert [type(fact) for fact in made] == kinds
        assert {getattr(fact, "by", None) for fact in made} == {by}


async def test_a_caller_can_ask_for_its_own_identity(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        token = tokens.make(Role.SUBMITTER, "ada", project="vision")
        body, _ = await api.call("GET", "/v1/me", headers=shown(token))
        expected = Identity(role=Role.SUBMITTER, user="ada", project="vision", token_id=token.split("_")[1])
        assert msgspec.convert(body, Identity) == expected


@pytest.mark.parametrize(
    ("headers", "says"), [({}, "a token is needed"), (shown("hop_1_2"), "this token is not valid here")]
)
async def test_a_missing_and_a_wrong_token_get_different_answers(
    headers: dict[str, str], says: str, tmp_path: Path
) -> None:
    async with guarded(tmp_path) as (api, tokens):
        tokens.make(Role.OPERATOR, "ada")
        async with api.client.get("/v1/jobs", headers={"Authorization": ""} | headers) as response:
            assert msgspec.json.decode(await response.read(), type=Problem).detail.startswith(says)


async def test_with_no_tokens_at_all_the_refusal_says_how_to_create_one(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, _):
        problem, _ = await api.call("GET", "/v1/policy", 401, headers=shown("x"))
        assert "hopyard token create" in problem["detail"]


async def test_a_file_that_others_can_read_holds_no_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        token = tokens.make(Role.OPERATOR)
        await api.call("GET", "/v1/policy", headers=shown(token))
        tokens.make(Role.VIEWER)
        tokens.path.chmod(0o644)
        await api.call("GET", "/v1/policy", 401, headers=shown(token))
        tokens.path.chmod(0o600)
        await api.call("GET", "/v1/policy", 200, headers=shown(token))


async def test_repeated_wrong_tokens_are_rate_limited_and_valid_ones_are_not(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (api, tokens):
        token = tokens.make(Role.VIEWER)
        for _ in range(FAILURES_MAX):
            await api.call("GET", "/v1/policy", 401, headers=shown("hop_00000000_guess"))
        _, headers = await api.call("GET", "/v1/policy", 429, headers=shown("hop_00000000_guess"))
        assert int(headers["Retry-After"]) > 0
        await api.call("GET", "/v1/policy", 200, headers=shown(token))


def test_failures_are_forgotten_in_time_and_by_address() -> None:
    failures = Failures()
    assert not any(failures.too_many("a", now=float(second)) for second in range(FAILURES_MAX))
    assert failures.too_many("a", now=FAILURES_MAX)
    assert not failures.too_many("b", now=FAILURES_MAX)
    assert not failures.too_many("a", now=FAILURES_MAX + 120.0)


def test_the_failures_of_many_addresses_take_no_room() -> None:
    failures = Failures()
    for number in range(10_000):
        failures.too_many(str(number), now=float(number))
    assert len(vars(failures)["_times"]) <= 1_024


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"web_host": "0.0.0.0", "behind_proxy": True}, "no token is required"),
        ({"web_host": "0.0.0.0", "api_tokens": "t"}, "unencrypted"),
        ({"web_host": "10.0.0.1", "api_token": "t"}, "unencrypted"),
    ],
)
def test_an_api_that_others_reach_is_not_served_without_tokens_and_tls(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        check_exposure(msgspec.convert(settings, Settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"web_host": "0.0.0.0", "api_tokens": "t", "behind_proxy": True},
        {"web_host": "0.0.0.0", "api_tokens": "t", "web_certificate": "c", "web_key": "k"},
    ],
)
def test_an_api_with_both_or_of_this_machine_is_served(settings: dict[str, object]) -> None:
    check_exposure(msgspec.convert(settings, Settings))


def test_a_submitter_controls_its_job_while_it_is_in_flight() -> None:
    driver = Driver()
    driver.held = True
    ada, bob = (Identity(role=Role.SUBMITTER, user=user) for user in ("ada", "bob"))
    done = driver.ask(Submit(job=job_file(), key="k", caller=ada))
    job_id = getattr(done, "job_id", None)
    refused = driver.ask(Cancel(job_id=job_id, caller=bob))  # type: ignore[arg-type]
    assert isinstance(refused, Problem)
    assert refused.status == 403


def test_a_restored_core_knows_the_users_of_its_jobs() -> None:
    ada = Identity(role=Role.SUBMITTER, user="ada")
    driver = Driver()
    driver.ask(Submit(job=job_file(), key="k", caller=ada))
    later = Admission(Settings())
    later.state = msgspec.msgpack.decode(
        msgspec.msgpack.encode(driver.core.state), type=type(driver.core.state)
    )
    assert [job.user for job in later.state.open.values()] == ["ada"]


def test_roles_are_a_ladder() -> None:
    for lower, upper in itertools.pairwise(Role):
        assert upper.covers(lower)
        assert not lower.covers(upper)
