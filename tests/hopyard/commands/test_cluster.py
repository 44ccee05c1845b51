"""status, nodes, policies, diag; and which cluster is meant."""

import asyncio
import json
import os
import socket
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hopyard.api import connect
from hopyard.local import accounts
from hopyard.local.data_folder import StackFile, write_stack_file
from hopyard.local.stacks import BESIDE_IT, folder_of_api, listed
from schemas.base import Event
from schemas.events import PolicyChosen
from schemas.ids import NodeId, PlanId
from schemas.views import (
    NodeDrain,
    NodePage,
    NodeSpeed,
    PolicyChoice,
    PolicyPage,
    Readiness,
    ServiceState,
    ServiceView,
)
from tests.fact_builders import plan
from tests.hopyard.cli_builders import node_view, plan_view, status_view
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi


def test_a_node_is_drained_and_restored(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("POST /v1/nodes/titan-0/drain", NodeDrain(node_id=NodeId("titan-0"), draining=True))
    api.says("DELETE /v1/nodes/titan-0/drain", NodeDrain(node_id=NodeId("titan-0"), draining=False))
    assert "draining" in hopyard("node", "drain", "titan-0", "--api", api.url).err
    assert "takes jobs again" in hopyard("node", "restore", "titan-0", "--api", api.url).err


def test_without_a_stack_the_installed_policies_are_listed(hopyard: Hopyard) -> None:
    listed = hopyard("policy", "list", "--api", "http://127.0.0.1:9")
    names = [line.split()[0] for line in listed.out.splitlines()]
    assert {"hops", "sia", "gavel", "tiresias", "fifo"} <= set(names)
    assert (
        "gavel-agnostic             As `gavel`, as if a job had the same speed on all GPU types."
        in listed.out.splitlines()
    )
    assert "cannot reach http://127.0.0.1:9" in listed.err
    as_json = hopyard("policy", "list", "--json", "--api", "http://127.0.0.1:9")
    found = json.loads(as_json.out)
    assert [each["name"] for each in found] == names
    assert all(each["about"] for each in found)


def test_the_policies_that_the_stack_takes_are_listed(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/policies", PolicyPage(policies=("fifo", "hops", "mine:Own", "*")))
    listed = hopyard("policy", "list", "--api", api.url).out.splitlines()
    assert [line.partition("  ")[0] for line in listed] == [
        "fifo",
        "hops",
        "mine:Own",
        "any module:attribute",
    ]
    assert "First in, first out, not preemptive" in listed[0]
    assert json.loads(hopyard("policy", "list", "--json", "--api", api.url).out)[2:] == [
        {"name": "mine:Own", "about": ""},
        {"name": "*", "about": ""},
    ]


def test_the_options_of_a_policy_are_shown(hopyard: Hopyard) -> None:
    shown = hopyard("policy", "show", "hops", "--json")
    [cost] = [option for option in json.loads(shown.out) if option["name"] == "moving_cost_s"]
    assert (cost["default"], cost["choices"]) == (None, "a number ≥ 0, ≤ 1e+06")
    assert "lr, ftf, las, sjf, srtf, fifo" in " ".join(hopyard("policy", "show", "hops").out.split())
    assert "policy nonsense is unknown" in hopyard("policy", "show", "nonsense").err
    none = hopyard("policy", "show", "json:loads")
    assert (none.code, "policy json:loads cannot be built" in none.err) == (2, True)


def test_an_option_that_the_policy_has_not_is_refused_in_the_cluster_s_words(
    hopyard: Hopyard, api: CannedApi
) -> None:
    api.refuses("PUT /v1/policy", 422, "policy hops has no option speed; it has priority_rule", "$.policy")
    refused = hopyard("policy", "set", "hops+speed=1", "--api", api.url)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "hopyard: policy hops has no option speed; it has priority_rule\n"


def test_policy_is_shown_and_set(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("PUT /v1/policy", PolicyChoice(policy="fifo"))
    assert hopyard("policy", "--api", api.url).out == "hops\n"
    assert hopyard("policy", "set", "fifo", "--api", api.url).out == "fifo\n"
    assert json.loads(api.requests[-1][3]) == {"policy": "fifo"}


def test_the_environment_says_where_the_api_is(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPYARD_API_URL", api.url)
    monkeypatch.setenv("HOPYARD_API_TOKEN", "secret")
    healthy(api)
    assert hopyard("policy").code == 0
    assert api.requests[0][2]["Authorization"] == "Bearer secret"


def test_a_stack_started_further_up_is_found(
    hopyard: Hopyard, api: CannedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hopyard").mkdir()
    (tmp_path / "jobs").mkdir()
    stack = StackFile(api_url=api.url, nats_url="nats://127.0.0.1:1", pid=os.getpid(), pids={}, ports={})
    write_stack_file(tmp_path / ".hopyard", stack)
    monkeypatch.chdir(tmp_path / "jobs")
    healthy(api)
    assert hopyard("policy").code == 0


def healthy(api: CannedApi) -> None:
    api.says("GET /v1/status", status_view())
    api.says("GET /readyz", Readiness())
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(),)))
    api.says("GET /v1/policy", PolicyChoice(policy="hops"))
    api.says_bytes("GET /v1/events", b"")


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        ("ps", "name one by --api or HOPYARD_API_URL"),
        ("token list", "name a token file by --file"),
        ("token revoke a", "name a token file by --file"),
        ("token create --user ada", "name a token file by --file"),
        ("accuracy", "set HOPYARD_NATS_URL"),
        ("calibrate", "set HOPYARD_NATS_URL"),
        ("store export a", "set HOPYARD_NATS_URL"),
        ("quarantine list", "set HOPYARD_NATS_URL"),
        ("restart", "name its folder by --data"),
        ("page", BESIDE_IT),
        *((f"node {word} a", f"{BESIDE_IT}, or name that by --data") for word in ("admit", "expel")),
    ],
)
def test_without_a_stack_a_command_says_how_to_name_one(
    hopyard: Hopyard, monkeypatch: pytest.MonkeyPatch, command: str, way_out: str
) -> None:
    monkeypatch.delenv("HOPYARD_NATS_URL", raising=False)
    ran = hopyard(*command.split())
    said = "no stack of yours runs on this machine; start one by `hopyard up`, or"
    assert (ran.code, ran.err) == (3, f"hopyard: {said} {way_out}\n")


def test_a_restart_names_no_stack_that_does_not_run(hopyard: Hopyard, tmp_path: Path) -> None:
    ran = hopyard("restart", "--data", str(tmp_path))
    assert ran.code == 3
    assert ran.err.startswith(f"hopyard: no stack runs on {tmp_path}")


def test_where_a_stack_has_ended_a_restart_names_the_one_that_runs_elsewhere(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ended, other = tmp_path / "ended" / ".hopyard", tmp_path / "other" / ".hopyard"
    for data in (ended, other):
        data.mkdir(parents=True)
        (data / "lock").touch()
    monkeypatch.chdir(ended.parent)
    url = "http://127.0.0.1:1"
    write_stack_file(other, StackFile(api_url=url, nats_url="", pid=os.getpid(), pids={}, ports={}))
    with listed(other, print):
        ran = hopyard("restart")
    said = f"the stack on {ended} does not run; another of yours runs on {other} ({url})"
    assert (ran.code, ran.err) == (3, f"hopyard: {said}; name its folder by --data\n")


def test_a_node_is_admitted_and_expelled_by_the_name_of_the_stack_s_folder(
    hopyard: Hopyard, tmp_path: Path
) -> None:
    data = tmp_path / "mine"
    data.mkdir()
    for command in ("admit", "expel"):
        ran = hopyard("node", command, "gpu-1", "--data", str(data))
        assert (ran.code, ran.err) == (2, f"hopyard: --data {data}: no stack has run on this folder\n")
    (data / "lock").touch()
    if os.geteuid() == 0:  # it would put files there that the stack cannot read
        os.chown(data, 4711, -1)
        assert "is another account's" in hopyard("node", "admit", "gpu-1", "--data", str(data)).err
        os.chown(data, 0, -1)
    ran = hopyard("node", "admit", "gpu-1", "--data", str(data))
    assert (ran.code, json.loads(ran.out)["user"]) == (0, "agent-gpu-1")
    for _ in range(2):
        assert "is expelled" in hopyard("node", "expel", "gpu-1", "--data", str(data)).err
    ran = hopyard("node", "expel", "gpu-2", "--data", str(data))
    assert (ran.code, ran.err) == (1, "hopyard: node gpu-2 was not admitted\n")


def test_status_is_the_cluster_at_a_glance(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(raqlr=0.25))
    assert "titan 12/16" in hopyard("status", "--api", api.url).out
    assert json.loads(hopyard("status", "--json", "--api", api.url).out)["raqlr"] == 0.25


ILL = ServiceView(
    name="planner",
    state=ServiceState.STARTING,
    since=1.0,
    at=2.0,
    restarts=3,
    last_error="KeyError: 'policy'",
    troubles=("hops plans in place of json:loads: TypeError",),
)


def test_status_shows_services_that_came_back_and_their_troubles(hopyard: Hopyard, api: CannedApi) -> None:
    well = ServiceView(name="placer", state=ServiceState.UP, since=1.0, at=2.0)
    api.says("GET /v1/status", status_view(services=(well, ILL)))
    shown = " ".join(hopyard("status", "--api", api.url).out.split())
    assert "1 up planner is starting, restarts: 3, last error: KeyError: 'policy'; hops plans" in shown


def test_status_shows_an_error_of_several_services_once(hopyard: Hopyard, api: CannedApi) -> None:
    """As after NATS was away, which ends all: it stood there for each, all in one line."""
    others = [replace(ILL, name=name, troubles=()) for name in ("placer", "monitor")]
    api.says("GET /v1/status", status_view(services=(ILL, *others)))
    shown = hopyard("status", "--api", api.url).out
    assert shown.count("KeyError") == 1
    lines = [line.strip() for line in shown.splitlines()]
    for name in ("placer", "monitor"):
        assert f"{name} is starting, restarts: 3, last error: the same" in lines


def test_diag_shows_services_that_are_not_well(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/status", status_view(services=(ILL,)))
    ran = hopyard("diag", "--json", "--api", api.url)
    assert ran.code == 1
    [check] = [check for check in json.loads(ran.out)["checks"] if check["what"] == "services"]
    assert (check["ok"], "restarts: 3" in check["detail"], "KeyError" in check["detail"]) == (
        False,
        True,
        True,
    )


def test_diag_shows_services_where_no_monitor_answers(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.refuses("GET /v1/status", 409, "no monitor")
    api.says("GET /readyz", Readiness(services=(ILL,)))
    ran = hopyard("diag", "--json", "--api", api.url)
    [check] = [check for check in json.loads(ran.out)["checks"] if check["what"] == "services"]
    assert (check["ok"], "restarts: 3" in check["detail"]) == (False, True)


def test_diag_is_content_with_a_healthy_stack(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    ran = hopyard("diag", "--json", "--api", api.url)
    assert ran.code == 0
    assert [check["what"] for check in json.loads(ran.out)["checks"]] == [
        "API",
        "services",
        "nodes",
        "clock",
        "policy",
        "event log",
    ]


def test_diag_points_at_a_lost_node(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(state="lost"),)))
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 1
    assert "titan-0 is lost" in ran.out


def test_a_slow_node_is_named_and_no_fault(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    speed = NodeSpeed(ratio=0.52, jobs=7, across=False, slow=True)
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(speed=speed), node_view("titan-1"))))
    ran = hopyard("diag", "--json", "--api", api.url)
    assert ran.code == 0
    assert "titan-0 is slow: 0.52 of its peers, 7 jobs" in ran.out
    assert hopyard("nodes", "-o", "node,speed,note", "--api", api.url).out.count("0.52") == 2


@pytest.mark.parametrize(("command", "code"), [("diag", 1), ("policy show", 0)])
def test_a_policy_that_cannot_be_loaded_is_seen(
    hopyard: Hopyard, api: CannedApi, command: str, code: int
) -> None:
    """Long after the one plan that said why."""
    healthy(api)
    note = "there is no policy nope:Bad; fifo goes on"
    logged = {"seq": 1, "event": plan(policy="fifo", notes=(note,))}
    api.says("GET /v1/policy", PolicyChoice(policy="nope:Bad"))
    api.says("GET /v1/status", status_view(policy="fifo", plan=plan_view(policy="fifo")))
    api.says_bytes("GET /v1/events", msgspec.json.encode(logged) + b"\n")
    ran = hopyard(*command.split(), "--api", api.url)
    assert ran.code == code
    assert f"nope:Bad was asked for, fifo made the last plan; {note}" in " ".join(ran.out.split())


@pytest.mark.parametrize(("command", "code"), [("diag", 1), ("policy show", 0)])
def test_a_policy_that_fails_in_every_plan_is_not_said_to_plan(
    hopyard: Hopyard, api: CannedApi, command: str, code: int
) -> None:
    """The plan has the name of the chosen policy, whoever made it."""
    healthy(api)
    note = "nope:Bad failed: ValueError: no; planned by fifo"
    api.says("GET /v1/policy", PolicyChoice(policy="nope:Bad"))
    api.says("GET /v1/status", status_view(plan=plan_view(policy="nope:Bad", notes=("late", note))))
    api.says_bytes("GET /v1/events", b"")
    ran = hopyard(*command.split(), "--api", api.url)
    assert ran.code == code
    assert f"nope:Bad was asked for, fifo made the last plan; {note}" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    "since", [PolicyChosen(policy="nope:Bad", at=2.0), plan(policy="nope:Bad", plan_id=PlanId("plan-2"))]
)
def test_what_was_noted_before_the_policy_was_chosen_or_planned_is_no_fault(
    hopyard: Hopyard, api: CannedApi, since: Event
) -> None:
    healthy(api)
    facts = (
        plan(policy="fifo", notes=("nope:Bad failed: no; planned by fifo",)),
        since,
        plan(policy="fifo", plan_id=PlanId("plan-3")),
    )
    lines = [msgspec.json.encode({"seq": seq, "event": fact}) for seq, fact in enumerate(facts, 1)]
    api.says("GET /v1/policy", PolicyChoice(policy="nope:Bad"))
    api.says("GET /v1/status", status_view(policy="fifo", plan=plan_view(policy="fifo")))
    api.says_bytes("GET /v1/events", b"\n".join([*lines, b""]))
    ran = hopyard("policy", "show", "--api", api.url)
    assert ran.out.strip() == "nope:Bad was asked for, fifo made the last plan"
    assert "nope:Bad failed" not in hopyard("diag", "--api", api.url).out


def test_a_policy_asked_for_a_moment_ago_is_no_fault(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/policy", PolicyChoice(policy="sia"))
    api.says("GET /v1/status", status_view(policy="fifo", plan=plan_view(policy="fifo")))
    api.says_bytes("GET /v1/events", b"")
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 0
    assert "sia was asked for, fifo made the last plan" in " ".join(ran.out.split())


def test_the_status_shows_the_notes_of_the_last_plan(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(plan=plan_view(notes=("the estimator was late",))))
    assert "the estimator was late" in hopyard("status", "--api", api.url).out


def test_diag_shows_a_drained_node_and_finds_no_fault(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    api.says("GET /v1/nodes", NodePage(nodes=(node_view(), node_view("titan-1", state="draining"))))
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 0
    assert "1 of 2 alive, titan-1 is draining" in ran.out


def test_diag_shows_gpus_that_are_withheld_and_why(hopyard: Hopyard, api: CannedApi) -> None:
    healthy(api)
    why = "starts pause for 30 s after one that failed: /run/hopyard: No space left on device"
    api.says(
        "GET /v1/nodes",
        NodePage(nodes=(node_view(), node_view("titan-1", withheld=dict.fromkeys((0, 1), why)))),
    )
    ran = hopyard("diag", "--api", api.url)
    assert ran.code == 0
    assert f"2 of 2 alive; titan-1: GPU 0,1 withheld: {why}" in " ".join(ran.out.split())


@pytest.mark.parametrize("command", ["admit", "expel"])
def test_a_node_that_nats_has_not_taken_in_or_out_is_reported(
    command: str, hopyard: Hopyard, api: CannedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "TAKEN_LIMIT_S", 0.0)
    data = tmp_path / ".hopyard"
    accounts.admitted(data, "gpu-1")
    stack = StackFile(
        api_url=api.url, nats_url="nats://127.0.0.1:1", pid=os.getpid(), pids={}, ports={}, accounts=1
    )
    write_stack_file(data, replace(stack, accounts_refused="the key does not fit"))
    for _ in range(2):  # a second time a node that NATS still let in was said not to be admitted
        ran = hopyard("node", command, "gpu-1")
        assert ran.code == 1
    assert "goes on with the accounts that it had: the key does not fit" in " ".join(ran.err.split())
    assert "is expelled" not in ran.err
    accounts.admitted(data, "gpu-1")
    write_stack_file(data, replace(stack, accounts=None))
    assert hopyard("node", command, "gpu-1").code == 0, "an older `hopyard up` says nothing"


def test_diag_points_at_a_dead_service_and_a_missing_nats(
    hopyard: Hopyard, api: CannedApi, tmp_path: Path
) -> None:
    healthy(api)
    (tmp_path / ".hopyard").mkdir()
    stack = StackFile(
        api_url=api.url,
        nats_url="nats://127.0.0.1:1",
        pid=os.getpid(),
        pids={"planner": 2**22 + 1},
        ports={"planner": 1},
    )
    write_stack_file(tmp_path / ".hopyard", stack)
    ran = hopyard("diag")
    assert ran.code == 1
    assert "is gone" in ran.out
    assert "nats://127.0.0.1:1" in ran.out


def test_diag_asks_all_services_at_the_same_time(hopyard: Hopyard, api: CannedApi, tmp_path: Path) -> None:
    healthy(api)
    api.says("GET /readyz", Readiness())
    api.together["GET /readyz"] = asyncio.Barrier(3)
    (tmp_path / ".hopyard").mkdir()
    names, port = ("planner", "placer", "agent-n-1"), int(api.url.rpartition(":")[2])
    stack = StackFile(
        api_url=api.url,
        nats_url="nats://127.0.0.1:1",
        pid=os.getpid(),
        pids=dict.fromkeys(names, os.getpid()),
        ports=dict.fromkeys(names, port),
    )
    write_stack_file(tmp_path / ".hopyard", stack)
    checks = {check["what"]: check["ok"] for check in json.loads(hopyard("diag", "--json").out)["checks"]}
    assert all(checks[name] for name in names)


def test_diag_without_an_api_is_code_3(hopyard: Hopyard) -> None:
    assert hopyard("diag", "--api", "http://127.0.0.1:1").code == 3


def test_where_an_instance_of_admission_hangs_another_is_asked(
    hopyard: Hopyard, api: CannedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system takes the calls of a stopped process."""
    monkeypatch.setattr(connect, "READY_LIMIT_S", 0.1)
    api.says("GET /v1/status", status_view())
    api.says("GET /readyz", Readiness())
    (tmp_path / ".hopyard").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as hung:
        port = hung.getsockname()[1]
        stack = StackFile(
            api_url=f"http://127.0.0.1:{port}",
            nats_url="nats://127.0.0.1:1",
            pid=os.getpid(),
            pids={},
            ports={"admission": port, "admission-2": int(api.url.rpartition(":")[2])},
        )
        write_stack_file(tmp_path / ".hopyard", stack)
        assert hopyard("status").code == 0
    assert folder_of_api(api.url) == tmp_path / ".hopyard", "so its token is sent"
