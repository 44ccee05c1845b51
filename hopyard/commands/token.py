"""token create, token list, token revoke; page; credentials."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace
from rich.text import Text

from hopyard.commands.options import AsJson, SecretOut, apart, folder_path, named
from hopyard.failures import Failure
from hopyard.local.credentials import page_file, page_link
from hopyard.local.stacks import BESIDE_IT, my_folder, my_stack
from hopyard.show.columns import Column, Listing
from hopyard.show.tables import facts_table
from hopyard.show.terminal import put, say, show
from hopyard.show.times import UNIX, Times
from schemas.tokens import Role

if TYPE_CHECKING:
    from hopyard.actions.tokens import MadeToken

DAYS_MAX = 36_500

token = typer.Typer(help="Create, list and revoke tokens of the API.", no_args_is_help=True)

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        dir_okay=False,
        callback=apart,
        help="Token file of another stack's admission (its setting api_tokens).",
        show_default="your own stack's",
    ),
]


@token.command("create")
def create_token(
    *,
    role: Annotated[Role, typer.Option("--role", help="What its holder may do.")] = Role.SUBMITTER,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="User whose token it is.")] = "",
    project: Annotated[
        str, typer.Option("--project", metavar="NAME", help="Project of the jobs that are submitted with it.")
    ] = "",
    days: Annotated[
        float, typer.Option("--days", min=0, max=DAYS_MAX, help="Days until it expires; 0: never.")
    ] = 90,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What it is for.")] = "",
    out: SecretOut = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it, this one time: only its digest is stored.

    A viewer reads. A submitter also submits jobs, and cancels those of the same
    user; agents that are root run them as the account of that name. An operator
    may do everything, to anybody's jobs. The token is valid at once, without a restart.

    $ hopyard token create --user ada --out ada.token
    $ hopyard token create --role operator --user bob --days 7
    $ hopyard token create --role viewer --note grafana --file tokens.json
    """
    from hopyard.actions.tokens import create, tokens_file  # noqa: PLC0415 - costs --help nothing so

    made = create(tokens_file(file), role, user=user, project=project, days=days, note=note)
    if out:
        _keep(made, out)
    if not as_json:
        until = "until it is revoked" if made.expires_at is None else f"until {_date(made.expires_at)}"
        where = f"in {out}" if out else "it is shown this one time"
        say(f"token {made.token_id}: {role}{f' {user}' if user else ''}, {until}; {where}")
    if out:
        made = replace(made, token="")
        if not as_json:
            return
    show(made, Text(made.token, no_wrap=True, overflow="ignore"), as_json=as_json)


@token.command("list")
def list_tokens(*, file: File = None, as_json: AsJson = False) -> None:
    """List the tokens that are valid or have expired: ids, roles and users, never the tokens themselves.

    $ hopyard token list --json
    """
    from hopyard.actions.tokens import TokenView, listed_tokens, tokens_file  # noqa: PLC0415 - as above

    columns = (
        Column[TokenView]("token", lambda each: each.token_id),
        Column[TokenView]("role", lambda each: each.role),
        Column[TokenView]("user", lambda each: each.user, cut=8),
        Column[TokenView]("project", lambda each: each.project, spare=2),
        Column[TokenView]("created", lambda each: _date(each.created_at), spare=3),
        Column[TokenView]("expires", lambda each: "" if each.expires_at is None else _date(each.expires_at)),
        Column[TokenView]("note", lambda each: each.note, spare=1, cut=10),
    )
    found = listed_tokens(tokens_file(file, to_read=True))
    show(found, Listing(columns, found), as_json=as_json)


@token.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN", callback=named, help="Id of the token.")],
    *,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token, from the next request on. Jobs that were submitted with it stay.

    $ hopyard token revoke 3f2a9c01
    """
    from hopyard.actions.tokens import revoke, tokens_file  # noqa: PLC0415 - as above

    gone = revoke(tokens_file(file, to_read=True), token_id)
    facts = {"token": gone.token_id, "role": str(gone.role), "user": gone.user}
    show(facts, facts_table(facts), as_json=as_json)


def page(
    *,
    opened: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
) -> None:
    """Print the address of your stack's page, with a viewer's token.

    Whoever has this address can read everything, and change nothing. With --open
    the browser gets it from a file that only its owner can read, since every
    account of the machine sees command lines.

    $ hopyard page --open
    """
    start = Path.cwd()
    data = my_folder(start, instead=BESIDE_IT)
    link = page_link(my_stack(start, instead=BESIDE_IT).api_url, data)
    if not opened:
        put(Text(link, no_wrap=True, overflow="ignore"))
        return
    file = page_file(link, data)
    if not webbrowser.open(file.as_uri()):
        raise Failure(f"no browser opened {file}; `hopyard page` prints the address")


def credentials(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=folder_path, help="Folder to write them to.")
    ],
) -> None:
    """Write credentials for a stack that `hopyard up` does not start, as in Kubernetes.

    DIR/credentials gets a NATS account for each service, one for agents, the part
    of NATS' configuration that lists them, and two API tokens with the file of
    their digests. Existing files are left as they are.

    $ hopyard credentials ~/lab
    """
    from hopyard.local.accounts import (  # noqa: PLC0415 - brings the services' table
        admitted_any,
        ensure_accounts,
        write_accounts,
    )
    from hopyard.local.credentials import ensure_tokens, folder_of  # noqa: PLC0415 - as above
    from hopyard.local.data_folder import close_to_others  # noqa: PLC0415 - as above

    close_to_others(folder)
    ensure_tokens(folder)
    ensure_accounts(folder)
    admitted_any(folder)
    write_accounts(folder)
    say(f"in {folder_of(folder)}; its owner alone can read it")


def _keep(made: "MadeToken", out: Path) -> None:
    """Write the token to a file; revoke it if that fails."""
    from hopyard.actions.tokens import revoke  # noqa: PLC0415 - costs --help nothing so
    from shared.runtime.outputs import write_secret  # noqa: PLC0415 - as above

    try:
        write_secret(out, f"{made.token}\n".encode())
    except OSError as error:
        revoke(Path(made.file), made.token_id)
        raise Failure(f"{out}: {error.strerror}; no token is made") from None


def _date(at: float) -> str:
    times = Times(UNIX)
    return "beyond the calendar" if times.iso(at) is None else times.date(at)


def register(app: typer.Typer) -> None:
    app.add_typer(token, name="token")
    app.command("page")(page)
    app.command("credentials")(credentials)
