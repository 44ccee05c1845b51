"""The command and the environment with which a rank is started. Pure.

A Python script is started under the plug-in (`python …/hopjob/__main__.py script.py`), which reports its
progress to the agent. Any other command is started as it is.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from schemas.events import StartOrdered
from schemas.jobs import JobSpec
from shared.domain import gangs

PLUGIN = "hopjob"
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?t?")
_FLAGS = re.compile(r"-(?=.)[bBdOqsuv]*(?P<last>[WX](?P<value>.*))?")
"""interpreter flags under which Python still searches the folders of PYTHONPATH, and so finds the plug-in;
the last flag of a word may have a value, there or in the next word"""
_PLAIN_LINE = re.compile(r"[\w@%+=:,./{} \t\"'-]+")
"""a shell line that needs no shell: splitting it into words is all that a shell would do"""
_OF_SHELLS = frozenset(
    {
        *(".", ":", "[", "alias", "bg", "cd", "command", "eval", "exec", "exit", "export", "false", "fg"),
        *("hash", "jobs", "local", "read", "readonly", "return", "set", "shift", "source", "test", "times"),
        *("trap", "true", "type", "ulimit", "umask", "unalias", "unset", "wait"),
        *("break", "case", "continue", "for", "function", "if", "time", "until", "while", "{"),
    }
)
"""first words that are a shell's own, or mean something else to it than a program of that name"""
READ_AT_START = (
    *("LD_", "PYTHON", "LANG", "LC_", "OMP_", "MKL_", "KMP_", "OPENBLAS_"),
    *("TORCH", "PYTORCH_", "GOMP_", "MALLOC_", "GLIBC_", "ATEN_", "NUMEXPR_"),
)
"""prefixes of variables that Python or a library reads only at its start: a fork of a template gets them too
late"""
READ_BY_FORKS = {"PYTHONPATH", "PYTHONUNBUFFERED"}
"""variables with such a prefix that the template applies in a fork itself"""
MARK = "HOPJOB_LAST"
"""environment variable that marks the processes of a worker; its value: the file for the rank's last
message"""
AGENT_ONLY = ("HOPYARD_", "HOPJOB_")
"""prefixes of the agent's own variables (settings, tokens), which no job inherits"""


class LaunchContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the node gives a worker: folders, GPUs, variables."""

    socket: str
    plugin: str
    """folder that holds the plug-in, and nothing else"""
    checkpoints: str
    gpus: tuple[str, ...] | None
    """UUIDs or indices; None: CPU slots"""
    host: str
    network_interface: str = ""
    merge: str = "weighted"
    """how weights of copies are averaged"""
    orphan_s: float = 0.0
    """seconds that ranks train on without an agent; 0: for ever"""


class Script(msgspec.Struct, frozen=True):
    """A Python command in parts."""

    interpreter: str
    flags: tuple[str, ...]
    argv: tuple[str, ...]
    """the script or `-m` and the module, and what follows"""

    def command(self, plugin: str) -> tuple[str, ...]:
        """`plugin`: its folder. It is started by its file: `-m` finds modules in the job's folder first."""
        return (self.interpreter, *self.flags, f"{plugin}/{PLUGIN}/__main__.py", *self.argv)


def command_of(order: StartOrdered, checkpoints: str) -> tuple[str, ...]:
    """The job's command, with placeholders such as `{gpus}` filled in for this placement."""
    spec = order.spec
    rate = order.learning_rate
    known = {
        "{learning_rate}": "" if rate is None else repr(rate),
        "{checkpoint}": checkpoints,
        "{samples}": f"{spec.samples:.0f}",
        "{batch_size}": str(spec.workload.batch_size),
        "{gpus}": str(order.gang.gpus),
    }
    return tuple(_filled(word, known) for word in _words(spec.command))


def script_of(command: Sequence[str]) -> Script | None:
    """The command as a Python script; None if it is none."""
    if not command or not _PYTHON.fullmatch(PurePath(command[0]).name):
        return None
    rest = list(command[1:])
    flags: list[str] = []
    while rest and (found := _FLAGS.fullmatch(rest[0])):
        words = 2 if found["last"] and not found["value"] else 1
        flags += rest[:words]
        del rest[:words]
    is_module = rest[:1] == ["-m"] and len(rest) > 1
    if not rest or (rest[0].startswith("-") and not is_module):
        return None
    return Script(command[0], tuple(flags), tuple(rest))


def template_interpreter(script: Script, spec: JobSpec) -> str | None:
    """The interpreter whose template may fork the ranks.

    None: a fork would behave differently from a process of its own, because of variables, flags or a
    container.
    """
    read = {name for name in spec.environment if name.startswith(READ_AT_START)} - READ_BY_FORKS
    if read or script.flags or spec.image:
        return None
    if "/" not in script.interpreter:
        return None if "PATH" in spec.environment else script.interpreter
    path = PurePath(spec.working_directory) / script.interpreter
    return str(path) if path.is_absolute() else None


def environment(
    order: StartOrdered, rank: int, context: LaunchContext, *, last: str, meeting: str = ""
) -> dict[str, str]:
    """The variables that one rank gets besides the agent's. `last`: the file for its last message."""
    spec, here = order.spec, order.gang.on(order.node_id)
    before = [one.gpus for one in order.gang.members if one.node < order.node_id]
    own = {
        "RANK": rank,
        "LOCAL_RANK": rank - sum(before),
        "WORLD_SIZE": order.gang.gpus,
        "LOCAL_WORLD_SIZE": here,
        "NODE_RANK": len(before),
        "CUDA_VISIBLE_DEVICES": ",".join(context.gpus or ()),
        "HOPJOB_SOCKET": context.socket,
        "HOPJOB_PLACEMENT": order.placement_id,
        "HOPJOB_ID": order.job_id,
        "HOPJOB_NODE": order.node_id,
        "HOPJOB_GPU_TYPE": next(one.gpu_type for one in order.nodes if one.node_id == order.node_id),
        MARK: last,
        "HOPJOB_CHECKPOINTS": context.checkpoints,
        "HOPJOB_CHECKPOINT_INTERVAL_S": spec.checkpoint_interval_s,
        "HOPJOB_SAMPLES": spec.samples,
        "HOPJOB_BATCH_SIZE": spec.workload.batch_size,
        "HOPJOB_SHARES": ",".join(map(str, _shares(order))),
        "HOPJOB_TASKS": ",".join(map(str, tasks_of(order))),
        **({"HOPJOB_TURNS": 1} if gangs.in_rota(order.gang) else {}),
        "HOPJOB_LEARNING_RATE": "" if order.learning_rate is None else repr(order.learning_rate),
        "HOPJOB_ADDRESS": context.host,
        **({"HOPJOB_ORPHAN_S": context.orphan_s} if context.orphan_s else {}),
        **({"HOPJOB_UNTIL": order.until, "HOPJOB_MERGE": context.merge} if order.until is not None else {}),
        **({"HOPJOB_PROFILE": order.profile_iterations} if order.profile_iterations else {}),
        **_threads(spec.cpus, context),
        **_network(context.network_interface, meeting),
    }
    return dict(spec.environment) | {name: str(value) for name, value in own.items()}


def computing_part(order: StartOrdered, gpu_indices: tuple[int, ...]) -> tuple[StartOrdered, tuple[int, ...]]:
    """The order reduced to GPUs with a task (a rank each), and their indices on this node."""
    [tasks] = [
        tasks
        for one, tasks in zip(order.gang.members, gangs.tasks(order.gang), strict=True)
        if one.node == order.node_id
    ]
    used = tuple(index for index, of_gpu in zip(gpu_indices, tasks, strict=True) if of_gpu)
    gang = gangs.computing(order.gang)
    nodes = tuple(node for node in order.nodes if gang.on(node.node_id))
    return msgspec.structs.replace(order, gang=gang, nodes=nodes), used


def _shares(order: StartOrdered) -> tuple[int, ...]:
    """Samples of an iteration by rank; empty if every rank takes whole batches."""
    batch_size = order.spec.workload.batch_size
    taken, tasks = _flat(gangs.batches(order.gang, batch_size)), _flat(gangs.tasks(order.gang))
    whole = all(samples == batch_size * batches for samples, batches in zip(taken, tasks, strict=True))
    return () if whole else taken


def tasks_of(order: StartOrdered) -> tuple[int, ...]:
    """Batches of an iteration by rank, which computes them one after another; empty if every rank has one."""
    tasks = _flat(gangs.tasks(order.gang))
    return tasks if set(tasks) != {1} else ()


def _flat(batches: gangs.Batches) -> tuple[int, ...]:
    return tuple(one for each in batches for one in each)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the agent's environment that a rank inherits."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(AGENT_ONLY) and name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }


def search_path(context: LaunchContext, environ: Mapping[str, str]) -> str:
    """PYTHONPATH of a rank: the plug-in's folder, then the job's own folders."""
    return ":".join(filter(None, (context.plugin, environ.get("PYTHONPATH"))))


def _threads(cpus: float | None, context: LaunchContext) -> dict[str, int]:
    if cpus is None:
        return {"OMP_NUM_THREADS": 1} if context.gpus is None else {}
    return {"OMP_NUM_THREADS": max(int(cpus), 1)}


def _network(interface: str, meeting: str) -> dict[str, str]:
    host, _, port = meeting.rpartition(":")
    met = {"MASTER_ADDR": host, "MASTER_PORT": port} if meeting else {}
    return met | interfaces(interface)


def interfaces(name: str) -> dict[str, str]:
    return dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), name) if name else {}


def _words(command: Sequence[str]) -> Sequence[str]:
    """The command without its shell, if its shell line holds only words; else unchanged."""
    match tuple(command):
        case ("sh", "-c", line) if _PLAIN_LINE.fullmatch(line.strip()):
            try:
                words = shlex.split(line)
            except ValueError:
                return command
            plain = words and "=" not in words[0] and words[0] not in _OF_SHELLS
            return words if plain else command
    return command


def _filled(word: str, known: Mapping[str, str]) -> str:
    for name, text in known.items():
        word = word.replace(name, text)
    return word
