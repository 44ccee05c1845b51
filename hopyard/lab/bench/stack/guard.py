"""Access control of a benchmarked stack: as `hopyard up` has it, or none."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hopyard.failures import Failure
from hopyard.local.accounts import accounts_in, ensure_accounts
from hopyard.local.credentials import account_of, ensure_tokens, own_token
from hopyard.local.stack_settings import HOST
from schemas.settings import Settings
from shared.runtime.bus.accounts import NatsUser
from shared.runtime.settings import PREFIX

OPENSSL = "openssl"
CERTIFICATE_DAYS = "2"


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tokens: Path | None = None
    """the data folder whose tokens the API asks for; None: there is no API"""
    accounts_of: Path | None = None
    """the data folder whose accounts NATS asks for; None: for none"""
    tls: tuple[str, str] | None = None
    """files of the certificate and the key of NATS"""

    def accounts(self) -> Sequence[NatsUser]:
        return accounts_in(self.accounts_of) if self.accounts_of else ()

    def token(self) -> str:
        return own_token(self.tokens) if self.tokens else ""

    def settings(self, url: str, user: str) -> Settings:
        """The settings with which an account connects to NATS."""
        return msgspec.structs.replace(Settings(), nats_url=url, **self._client(user))

    def environ(self, user: str) -> dict[str, str]:
        """The environment of a service."""
        return {f"{PREFIX}{name.upper()}": value for name, value in self._client(user).items()}

    def _client(self, user: str) -> dict[str, str]:
        file = account_of(self.accounts_of, user).absolute() if self.accounts_of else None
        account = {} if file is None else {"nats_credentials": str(file)}
        return account | ({"nats_authority": self.tls[0]} if self.tls else {})


OPEN = Guard(name="open")


def with_tokens(data: Path) -> Guard:
    ensure_tokens(data)
    return Guard(name="tokens alone", tokens=data)


def with_accounts(data: Path) -> Guard:
    """The guard of `hopyard up`: accounts at NATS, and tokens for the API."""
    ensure_accounts(data)
    return msgspec.structs.replace(with_tokens(data), name="accounts, tokens", accounts_of=data)


def with_tls(data: Path) -> Guard:
    """As `with_accounts`, and NATS speaks TLS. Raises Failure if no program here makes a certificate."""
    if shutil.which(OPENSSL) is None:
        raise Failure(f"TLS is measured where there is {OPENSSL}, which makes the certificate")
    guard = with_accounts(data)
    certificate, key = (str((data / f"{name}.pem").absolute()) for name in ("certificate", "key"))
    made = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    about = ("-days", CERTIFICATE_DAYS, "-subj", "/CN=bench", "-addext", f"subjectAltName=IP:{HOST}")
    command = (OPENSSL, *made, *about, "-out", certificate, "-keyout", key)
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - nothing of it is a user's
    return msgspec.structs.replace(guard, name="and TLS", tls=(certificate, key))
