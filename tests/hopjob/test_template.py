"""Workers forked from a process that has imported torch are processes like any other."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, Rank, go, surroundings, until
from tests.hopjob.forks import begun
from tests.paths import ROOT
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch


class Template:
    def __init__(self, folder: Path, **environment: object) -> None:
        self.folder = folder
        self.process = begun({**surroundings(), "SECRET": "of the template", **environment})
        assert self.hear("ready")["pid"] == self.process.pid

    def hear(self, word: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        found = json.loads(self.process.stdout.readline())
        assert list(found) == [word], found
        value: dict[str, Any] = found[word]
        return value

    def fork(self, *argv: object, **order: Any) -> int:  # noqa: ANN401 - JSON
        """Process id of the fork."""
        self.ask(*argv, **order)
        forked = self.hear("forked")
        assert forked["id"] == 7
        return int(forked["pid"])

    def ask(self, *argv: object, **order: Any) -> None:  # noqa: ANN401 - JSON
        what = {
            "id": 7,
            "argv": [str(one) for one in argv],
            "env": {key: str(value) for key, value in {**surroundings(), "COLOUR": "red"}.items()},
            "cwd": str(self.folder),
            "log": str(self.folder / "log"),
            "enter": ["/nonexistent/cgroup.procs", str(self.folder / "procs")],
        }
        self.write(json.dumps({"fork": {**what, **order}}) + "\n")

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    started = Template(tmp_path_factory.mktemp("template"))
    yield started
    started.process.kill()
    started.process.wait()
    for pipe in (started.process.stdin, started.process.stdout):
        if pipe is not None:
            pipe.close()


def test_a_fork_is_an_ordinary_process(template: Template, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, random, signal, sys, torch\n"
        "print(sys.argv, os.getcwd(), os.getsid(0) == os.getpid())\n"
        "print(os.environ['COLOUR'], 'SECRET' in os.environ)\n"
        "print(open('/proc/self/cmdline').read().strip(chr(0)))\n"
        "print(open('/proc/self/environ').read().split(chr(0))[-2:])\n"
        "print('of the template' in open('/proc/self/environ').read())\n"
        "print(sys.stdin.read() == '', __name__, sys.path[0], torch.get_num_threads())\n"
        "print(int(signal.getsignal(signal.SIGCHLD)), int(signal.getsignal(signal.SIGTERM)))\n"
        "print(sorted(os.readlink(f'/proc/self/fd/{fd}') for fd in (0, 1, 2)), file=sys.stderr)\n"
        "print(open('/proc/self/oom_score_adj').read().strip())\n"
        "sys.exit(3)\n"
    )
    template.folder = tmp_path
    (tmp_path / "procs").touch()
    environment = {**surroundings(), "COLOUR": "red", "HOPJOB_LAST": tmp_path / "last"}
    given = {key: str(value) for key, value in environment.items()}
    pid = template.fork(tmp_path / "script.py", "--lr", "0.1", env=given)
    assert template.hear("gone") == {"pid": pid, "code": 3}
    script, log = tmp_path / "script.py", tmp_path / "log"
    assert template.log.splitlines() == [
        f"['{script}', '--lr', '0.1'] {tmp_path} True",
        "red False",
        f"hopjob rank 0: {script} --lr 0.1",
        f"['HOPJOB_LAST={tmp_path}/last', '']",
        "False",
        f"True __main__ {tmp_path} 1",
        "0 0",
        f"['/dev/null', '{log}', '{log}']",
        "500",
    ]
    assert (tmp_path / "procs").read_text() == "0"


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("raise ValueError('not so')", 1, "ValueError: not so"),
        ("raise SystemExit('a reason')", 1, "a reason"),
        ("pass", 0, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_exit_codes_are_those_of_the_script(
    template: Template, tmp_path: Path, script: str, code: int, says: str
) -> None:
    (tmp_path / "script.py").write_text(script)
    template.folder = tmp_path
    pid = template.fork(tmp_path / "script.py")
    assert template.hear("gone") == {"pid": pid, "code": code}
    assert says in template.log
    assert "template.py" not in template.log


def test_a_fork_that_cannot_start_ends_with_its_reason(template: Template, tmp_path: Path) -> None:
    template.folder = tmp_path
    pid = template.fork("script.py", cwd=str(tmp_path / "nowhere"))
    assert template.hear("gone") == {"pid": pid, "code": 127}
    assert template.log == f"hopyard: cannot be started: {tmp_path}/nowhere: No such file or directory\n"


def test_a_gang_of_forks_trains(template: Template, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        template.folder = tmp_path
        ranks = []
        for number in range(2):
            last, log = tmp_path / f"last-{number}.json", tmp_path / f"{number}.log"
            environment = {
                **surroundings(number, 2),
                "HOPJOB_SOCKET": agent.path,
                "HOPJOB_PLACEMENT": "f",
                "HOPJOB_LAST": last,
                "LEDGER": tmp_path / f"{number}.ledger",
                "EPOCHS": 1,
            }
            given = {key: str(value) for key, value in environment.items()}
            template.fork(SCRIPTS / "ledger.py", env=given, log=str(log))
            rank = Rank(number, template.process, log, last)
            agent.ranks["f", number] = rank
            ranks.append(rank)
        go(ranks)
        assert sorted(template.hear("gone")["code"] for _ in ranks) == [0, 0]
        assert all("completed" in rank.last_word() for rank in ranks)
        agent.ranks.clear()  # they are no processes of the test's own


def test_forks_outlive_their_template(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time\nprint('runs')\ntime.sleep(600)\n")
    template = Template(tmp_path)
    pid = template.fork(tmp_path / "script.py")
    assert template.process.stdin is not None
    assert template.process.stdout is not None
    template.process.stdin.close()
    assert template.process.wait() == 0
    template.process.stdout.close()
    # A fork makes its log, maybe after its template has ended.
    until(lambda: (tmp_path / "log").exists() and "runs" in template.log)
    os.kill(pid, signal.SIGKILL)


def test_a_template_ends_with_its_forks_once_other_libraries_are_installed(tmp_path: Path) -> None:
    """A fork would run what was imported before, with files that are imported now."""
    find = [str(torch_python()), "-c", "import torch; print(torch.__path__[0])"]
    site = tmp_path / "site"
    site.mkdir()
    (site / "torch").symlink_to(subprocess.check_output(find, text=True).strip())
    (tmp_path / "script.py").write_text("import time\ntime.sleep(600)\n")
    template = Template(tmp_path, PYTHONPATH=f"{site}:{ROOT}")
    pid = template.fork(tmp_path / "script.py")
    (site / "torch-99.dist-info").mkdir()
    template.ask(tmp_path / "script.py")
    assert template.hear("outdated") == {}
    assert template.hear("unforked")["id"] == 7
    template.ask(tmp_path / "script.py")
    assert template.hear("unforked")["id"] == 7
    os.kill(pid, signal.SIGKILL)
    assert template.hear("gone") == {"pid": pid, "code": -signal.SIGKILL}
    assert template.process.wait() == 0
    for pipe in (template.process.stdin, template.process.stdout):
        assert pipe is not None
        pipe.close()


def test_a_template_that_retires_ends_with_its_forks(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(3)\n")
    template = Template(tmp_path)
    pid = template.fork(tmp_path / "script.py")
    template.write('{"retire": {}}\n')
    assert template.hear("gone") == {"pid": pid, "code": 3}
    assert template.process.wait() == 0
    for pipe in (template.process.stdin, template.process.stdout):
        assert pipe is not None
        pipe.close()
