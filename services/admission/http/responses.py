"""Responses: a struct as JSON, a refusal as a problem, and opaque page tokens."""

import base64
import binascii

import msgspec
from aiohttp import web

from schemas.base import Message
from schemas.views import Problem
from services.admission import problems
from services.admission.http.openapi import PROBLEM
from services.admission.problems import Refusal

_EXTRA_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": str(problems.RETRY_AFTER_S)},
    503: {"Retry-After": str(problems.RETRY_AFTER_S)},
}


def answer(message: Message, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(message)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def refuse(problem: Problem) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(problem),
        status=problem.status,
        headers=_EXTRA_HEADERS.get(problem.status),
        content_type=PROBLEM,
    )


def token_of(position: str | None) -> str | None:
    """An opaque token with which a user gets the next page."""
    return None if position is None else base64.urlsafe_b64encode(position.encode()).decode()


def position_of(token: str | None) -> str | None:
    """The position in a page token. Raises Refusal for text that is none."""
    if token is None:
        return None
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        reason = "this is no page token; give `next` of the page before"
        raise Refusal(problems.invalid("$.after", reason)) from None
