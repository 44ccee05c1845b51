"""Programs of the tests end in good order, whether or not their output is read."""

import subprocess
import sys

from tests.paths import ROOT

SAYS_MUCH = "from tests.programs import run\ndef main():\n    for n in range(10**6): print(n)\nrun(main)"
ENDS_WITH = "from tests.programs import run\nrun(lambda: {code!r})"


def begun(source: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", source]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    program = begun(SAYS_MUCH)
    assert program.stdout is not None
    assert program.stdout.readline() == b"0\n"
    program.stdout.close()
    _, said = program.communicate()
    assert (program.returncode, said) == (141, b"")


def test_the_exit_code_is_that_of_the_program() -> None:
    for code, ended in ((None, 0), (0, 0), (1, 1)):
        program = begun(ENDS_WITH.format(code=code))
        assert program.communicate() == (b"", b"")
        assert program.returncode == ended
