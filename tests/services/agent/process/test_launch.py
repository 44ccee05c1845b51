"""What is started for a rank: its command and its environment."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.events import StartOrdered
from schemas.ids import GpuType, NodeId
from schemas.placement import Proportional, Relaxed
from services.agent.process import containers
from services.agent.process.launch import (
    LaunchContext,
    command_of,
    computing_part,
    environment,
    inherited,
    script_of,
    search_path,
    template_interpreter,
)
from tests.services.agent.agent_bench import HERE, node, start
from tests.services.agent.process.process_bench import order

CONTEXT = LaunchContext(
    socket="/s", plugin="/plugin", checkpoints="/c", gpus=("GPU-1", "GPU-2"), host="10.0.0.7"
)


@pytest.mark.parametrize(
    ("command", "started"),
    [
        ("python train.py --x 1", "python /plugin/hopjob/__main__.py train.py --x 1"),
        ("/opt/python3.11 -u -m lab.train", "/opt/python3.11 -u /plugin/hopjob/__main__.py -m lab.train"),
        ("python -W ignore train.py", "python -W ignore /plugin/hopjob/__main__.py train.py"),
        ("python -uX dev -Wignore t.py", "python -uX dev -Wignore /plugin/hopjob/__main__.py t.py"),
        ("python -c pass", ""),
        ("python -W ignore", ""),
        ("python -W", ""),
        ("python -x train.py", ""),
        ("python -m", ""),
        ("python -I train.py", ""),
        ("python", ""),
        ("./train.sh", ""),
        ("torchrun train.py", ""),
        ("pythonista train.py", ""),
    ],
)
def test_a_python_script_is_started_under_the_plug_in(command: str, started: str) -> None:
    script = script_of(command.split())
    assert (" ".join(script.command(CONTEXT.plugin)) if script else "") == started


@pytest.mark.parametrize(
    ("command", "more", "interpreter"),
    [
        ("/opt/env/bin/python t.py", {}, "/opt/env/bin/python"),
        ("/opt/env/bin/python t.py", {"environment": {"PATH": "/x", "DATA": "/d"}}, "/opt/env/bin/python"),
        ("python t.py", {}, "python"),
        ("python t.py", {"environment": {"PATH": "/opt/env/bin"}}, None),
        (".venv/bin/python t.py", {"working_directory": "/lab/a"}, "/lab/a/.venv/bin/python"),
        ("./python t.py", {"working_directory": "/lab/a"}, "/lab/a/python"),
        ("./python t.py", {"working_directory": ""}, None),
        (".venv/bin/python t.py", {"working_directory": ""}, None),
        (".venv/bin/python t.py", {"working_directory": "lab"}, None),
        ("python t.py", {"environment": {"LD_PRELOAD": "/lib/x.so"}}, None),
        ("python t.py", {"environment": {"PYTHONHASHSEED": "0"}}, None),
        ("python t.py", {"environment": {"MKL_NUM_THREADS": "2"}}, None),
        ("python t.py", {"environment": {"TORCH_COMPILE_DISABLE": "1"}}, None),
        ("python t.py", {"environment": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}}, None),
        ("python t.py", {"environment": {"PYTHONPATH": "/lib", "PYTHONUNBUFFERED": "1"}}, "python"),
        ("python -u t.py", {}, None),
        ("python t.py", {"image": "torch:2"}, None),
    ],
)
def test_a_rank_is_a_fork_where_it_would_run_just_so_alone(
    command: str, more: dict[str, Any], interpreter: str | None
) -> None:
    script = script_of(command.split())
    assert script is not None
    assert template_interpreter(script, order(**more).spec) == interpreter


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python train.py --name 'a b'", ("python", "train.py", "--name", "a b")),
        ("cd /x && python train.py", None),
        ("FOO=1 python train.py", None),
        ("python train.py > log", None),
        ("python 'train.py", None),
        ("python $SCRIPT", None),
        ("python train.py\n", ("python", "train.py")),
        ("python prepare.py\npython train.py", None),
        ("set -e\npython train.py", None),
        ("exec python train.py", None),
        ("export A=1", None),
        ("/usr/bin/test train.py", ("/usr/bin/test", "train.py")),
    ],
)
def test_a_line_of_words_needs_no_shell(line: str, words: tuple[str, ...] | None) -> None:
    command = ("sh", "-c", line)
    assert command_of(order(command=command), "/c") == (words or command)


def test_placeholders_are_filled_and_other_braces_left() -> None:
    command = (
        "python",
        "t.py",
        "--lr={learning_rate}",
        "{checkpoint}/{gpus}/{batch_size}/{samples}",
        '{"a": 1}',
    )
    of = order(command=command, gpus=2, learning_rate=0.1)
    assert command_of(of, "/c")[2:] == ("--lr=0.1", "/c/2/32/1000", '{"a": 1}')


def variables(
    of: StartOrdered, rank: int = 0, context: LaunchContext = CONTEXT, meeting: str = ""
) -> dict[str, str]:
    return environment(of, rank, context, last="/l", meeting=meeting)


def test_a_rank_knows_its_place_in_the_gang() -> None:
    of = start(gang=[(node(NodeId("a")), 3), (node(HERE), 2)])
    found = variables(of, rank=4)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "CUDA_VISIBLE_DEVICES")
    assert [found[name] for name in names] == ["4", "1", "5", "2", "1", "GPU-1,GPU-2"]
    assert "HOPJOB_PROFILE" not in found
    assert "MASTER_ADDR" not in found


def test_ranks_with_unlike_shares_know_those_of_all() -> None:
    members = [(node(NodeId("a")), 2), (node(HERE), 1)]
    size = start().spec.workload.batch_size
    unlike = Proportional(samples=(2 * size - 5, size + 5))
    shares = f"{size - 2},{size - 3},{size + 5}"
    assert variables(start(gang=members, sync=unlike), rank=2)["HOPJOB_SHARES"] == shares
    assert variables(start(gang=members), rank=2)["HOPJOB_SHARES"] == ""
    alike = Proportional(samples=(2 * size, size))
    assert variables(start(gang=members, sync=alike), rank=2)["HOPJOB_SHARES"] == ""


def test_ranks_know_how_many_batches_each_has_in_an_update() -> None:
    members = [(node(NodeId("a")), 2), (node(HERE), 1)]
    found = variables(start(gang=members, sync=Relaxed(tasks=((3, 1), (2,)))), rank=2)
    assert (found["HOPJOB_TASKS"], found["HOPJOB_SHARES"]) == ("3,1,2", "")
    assert variables(start(gang=members, sync=Relaxed(tasks=((1, 1), (1,)))), rank=2)["HOPJOB_TASKS"] == ""


def test_a_gpu_without_a_batch_has_no_rank() -> None:
    members = [(node(NodeId("a")), 2), (node(HERE), 3)]
    idle = start(gang=members, sync=Relaxed(tasks=((3, 0), (0, 2, 1))))
    of, used = computing_part(idle, (4, 5, 6))
    assert used == (5, 6)
    assert variables(of, rank=2)["HOPJOB_TASKS"] == "3,2,1"
    assert (variables(of, rank=2)["WORLD_SIZE"], variables(of, rank=2)["LOCAL_RANK"]) == ("3", "1")
    plain = start(gang=members)
    assert computing_part(plain, (4, 5, 6)) == (plain, (4, 5, 6))


def test_a_copy_knows_where_its_share_ends_and_how_it_is_merged() -> None:
    of = msgspec.structs.replace(order(), until=320.0)
    found = variables(of, context=msgspec.structs.replace(CONTEXT, merge="plain"))
    names = ("HOPJOB_UNTIL", "HOPJOB_SAMPLES", "HOPJOB_NODE", "HOPJOB_MERGE")
    assert [found[name] for name in names] == ["320.0", "1000.0", HERE, "plain"]
    assert not {"HOPJOB_UNTIL", "HOPJOB_MERGE"} & variables(order()).keys()


def test_slots_of_a_cpu_see_no_gpu_and_have_one_thread() -> None:
    slots = msgspec.structs.replace(CONTEXT, gpus=None)
    found = variables(order(), context=slots)
    assert (found["CUDA_VISIBLE_DEVICES"], found["OMP_NUM_THREADS"]) == ("", "1")
    assert variables(order(cpus=4.0), context=slots)["OMP_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in variables(order())


def test_a_job_sets_its_environment_but_not_the_variables_of_its_ranks() -> None:
    of = order(environment={"RANK": "7", "DATA": "/data", "PYTHONPATH": "/lib"})
    found = variables(of)
    assert (found["RANK"], found["DATA"]) == ("0", "/data")
    assert search_path(CONTEXT, found) == "/plugin:/lib"


def test_ranks_inherit_no_secret_of_the_agent() -> None:
    of_agent = {
        "HOPYARD_NATS_TOKEN": "x",
        "HOPJOB_ID": "j",
        "PYTHONPATH": "/ours",
        "PATH": "/bin",
        "LANG": "C",
    }
    assert inherited(of_agent) == {"PATH": "/bin", "LANG": "C"}


def test_ranks_of_a_command_meet_as_they_are_used_to() -> None:
    found = variables(order(gpus=2), meeting="10.0.0.7:4711")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.7", "4711")


def test_the_interface_is_for_both_libraries() -> None:
    found = variables(order(), context=msgspec.structs.replace(CONTEXT, network_interface="ib0"))
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == "ib0"


def test_a_container_sees_its_folders_its_gpus_and_its_variables() -> None:
    spec = order(image="torch:2", memory=1e9, cpus=1.5, working_directory="/w").spec
    container = containers.Container(
        engine="/usr/bin/docker",
        name="hopyard-p1-0",
        user="5:6",
        environment=Path("/r/rank-0.environment"),
        folders=("/w", "/c", "/w", "//w/", "//", "/./"),
        gpus=("GPU-1", "GPU-2"),
    )
    words = containers.wrapped(container, spec, ("python", "-m", "hopjob", "t.py"))
    assert words[:2] == ("/usr/bin/docker", "run")
    assert words[-5:] == ("torch:2", "python", "-m", "hopjob", "t.py")
    assert {"--memory=1000000000", "--cpus=1.5", "--user=5:6"} <= set(words)
    assert {"--mount=type=bind,source=/c,target=/c", "--env-file=/r/rank-0.environment"} <= set(words)
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(words)
    assert '--gpus="device=GPU-1,GPU-2"' in words
    assert [word for word in words if word.startswith("--mount")] == [
        "--mount=type=bind,source=/w,target=/w",
        "--mount=type=bind,source=/c,target=/c",
    ]
    of_podman = containers.wrapped(msgspec.structs.replace(container, engine="podman"), spec, ("x",))
    assert "--device=nvidia.com/gpu=GPU-1" in of_podman


def test_a_gpu_type_is_named() -> None:
    assert variables(order())["HOPJOB_GPU_TYPE"] == GpuType("t4")
