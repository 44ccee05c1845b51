"""One stack for all container tests: images take a minute to build, the stack some seconds to start."""

import os
from collections.abc import Iterator

import pytest
from compose_stack import ComposeStack


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    """All images, and the stack that is not up yet."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("HOPYARD_", "COMPOSE_")):
                patch.delenv(name)
        stack = ComposeStack(tmp_path_factory.mktemp("compose"))
        stack.build()
        yield stack


@pytest.fixture(scope="module")
def stack(built: ComposeStack, request: pytest.FixtureRequest) -> Iterator[ComposeStack]:
    """The stack, up and healthy."""
    with built.up(failed=lambda: request.session.testsfailed):
        yield built
