"""The API behind a file of tokens."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from schemas.questions import ListNodes
from schemas.tokens import Role, TokenEntry
from schemas.views import NodePage
from shared.runtime.tokens import change_tokens, issued
from tests.services.admission.admission_world import Served, joined, serving

HOUR_S = 3600.0


class Tokens:
    """A file of tokens, one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self, role: Role, user: str = "", project: str = "", expires_s: float = HOUR_S) -> str:
        now = time.time()
        token, entry = issued(role, user=user, now=now, project=project, expires_at=now + expires_s)
        change_tokens(self.path, lambda there: (*there, entry))
        return token

    def change(self, token: str, *, project: str | None) -> None:
        """The token is of that project from now on; None: it is revoked."""
        mine = token.split("_")[1]

        def changed(there: tuple[TokenEntry, ...]) -> Iterator[TokenEntry]:
            for each in there:
                if each.token_id != mine:
                    yield each
                elif project is not None:
                    yield msgspec.structs.replace(each, project=project)

        change_tokens(self.path, changed)

    def revoke_all(self) -> None:
        change_tokens(self.path, lambda _: ())


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[tuple[Served, Tokens]]:
    tokens = Tokens(folder / "private" / "tokens.json")
    async with serving(api_token="", api_tokens=str(tokens.path)) as api:
        api.driver.fold(joined())
        api.views[ListNodes] = NodePage(nodes=())
        yield api, tokens
