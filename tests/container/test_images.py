"""Each image has what its service needs, and not what the others need."""

import pytest
from compose_stack import ComposeStack, command

pytestmark = pytest.mark.container

HEAVY = ("duckdb", "ortools", "sklearn", "typer")
FIND = "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("admission", []),
        ("profiler", ["sklearn"]),
        ("estimator", ["duckdb"]),
        ("planner", ["ortools"]),
        ("placer", []),
        ("monitor", []),
        ("agent", []),
        ("cli", ["typer"]),
    ],
)
def test_an_image_has_only_the_libraries_of_its_part(built: ComposeStack, image: str, own: list[str]) -> None:
    assert built
    found = command("docker", "run", "--rm", "--entrypoint", "python", f"hopyard/{image}", "-c", FIND, *HEAVY)
    assert found.split() == own


@pytest.mark.parametrize("image", ["admission", "cli"])
def test_nothing_runs_as_root(built: ComposeStack, image: str) -> None:
    assert built
    assert command("docker", "run", "--rm", "--entrypoint", "id", f"hopyard/{image}", "-u").strip() != "0"
