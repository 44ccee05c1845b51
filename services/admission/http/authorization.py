"""Authorization of the HTTP API: a token, its role, and the role that each operation requires."""

import time
from collections import OrderedDict, deque
from collections.abc import Sequence

import structlog
from multidict import CIMultiDictProxy

from schemas.settings import Settings
from schemas.tokens import Identity, Role
from services.admission import problems
from services.admission.problems import Refusal
from shared.runtime.addresses import loopback
from shared.runtime.service import Metric
from shared.runtime.tokens import Keyring

FAILURES_MAX = 20
"""wrong tokens from one address within `WITHIN_S`; more are answered 429"""
WITHIN_S = 60.0
ADDRESSES_MAX = 1_024
"""addresses whose wrong tokens are counted; beyond that, the one that was silent for longest is forgotten"""
BEARER = "bearer"


class Authorization:
    """Admits requests by their token; counts refusals, and logs them without the token."""

    def __init__(self, settings: Settings) -> None:
        self._keyring = Keyring(settings.api_tokens, settings.api_token)
        self._failures = Failures()
        self._without_token = Failures()
        self._counts = {"unknown": 0, "forbidden": 0}

    def admit(self, shown: str, address: str, needed: Role, operation: str) -> Identity:
        """The identity behind the value of a header `Authorization`. Raises Refusal."""
        caller = self._holder(shown)
        if caller is None:
            raise self._unknown(shown, address, operation)
        if not caller.role.covers(needed):
            self._counts["forbidden"] += 1
            log = structlog.get_logger().warning
            log("forbidden", operation=operation, address=address, who=caller.name, role=caller.role)
            reason = f"{operation} needs the role {needed}; the token has the role {caller.role}"
            raise Refusal(problems.forbidden(reason))
        return caller

    def still(self, shown: str, caller: Identity) -> bool:
        """Whether a token still has the same identity: it has not expired, been revoked or changed."""
        return self._holder(shown) == caller

    def metrics(self) -> Sequence[Metric]:
        return [
            Metric(
                name="admission_refused",
                help="Requests without a valid token (unknown), or with too small a role (forbidden).",
                value=count,
                labels={"reason": reason},
                counter=True,
            )
            for reason, count in self._counts.items()
        ]

    def _holder(self, shown: str) -> Identity | None:
        scheme, _, token = shown.partition(" ")
        return self._keyring.holder(token.strip(), time.time()) if scheme.lower() == BEARER else None

    def _unknown(self, shown: str, address: str, operation: str) -> Refusal:
        self._counts["unknown"] += 1
        failures = self._failures if shown else self._without_token
        too_many = failures.too_many(address, time.monotonic())
        if not too_many:
            what = "wrong token" if shown else "no token"
            structlog.get_logger().warning(what, operation=operation, address=address)
        if self._keyring.empty():
            return Refusal(
                problems.unauthorized("this API knows no token yet: `hopyard token create` makes one")
            )
        if shown and too_many:
            reason = f"more than {FAILURES_MAX} wrong tokens came from this address within {WITHIN_S:g} s"
            return Refusal(problems.too_many(f"{reason}; wait as long"))
        return Refusal(problems.unauthorized(problems.WRONG if shown else problems.NEEDED))


def shown_in(headers: CIMultiDictProxy[str]) -> str:
    """The value of the header `Authorization`.

    Several values are joined to one that is refused, since a proxy may have checked another of them.
    """
    return ", ".join(headers.getall("Authorization", ()))


class Failures:
    """Counts recent failures by address."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def too_many(self, address: str, now: float) -> bool:
        """Count one more failure, and say whether there were too many."""
        times = self._times.setdefault(address, deque(maxlen=FAILURES_MAX + 1))
        self._times.move_to_end(address)
        while len(self._times) > ADDRESSES_MAX:
            self._times.popitem(last=False)
        times.append(now)
        return len(times) > FAILURES_MAX and now - times[0] < WITHIN_S


def check_exposure(settings: Settings) -> None:
    """Raises ValueError for an API that other machines reach without a token, or without TLS."""
    if loopback(settings.web_host):
        return
    if not (settings.api_tokens or settings.api_token):
        raise ValueError(
            f"web_host={settings.web_host} lets other machines in, and no token is required: "
            "set api_tokens to a file that `hopyard token create --file` has made"
        )
    if not (settings.web_certificate or settings.behind_proxy):
        raise ValueError(
            f"web_host={settings.web_host} would have tokens cross the network unencrypted: set "
            "web_certificate and web_key, or behind_proxy where a proxy in front of the API speaks TLS"
        )
