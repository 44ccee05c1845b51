"""The page at `/`: files of this package. They are served without a token; the data they show needs one.

Links in it are relative, so it works behind a proxy under any prefix that ends in `/`.
"""

import hashlib
from pathlib import Path

import msgspec
from aiohttp import web

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"

KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
}

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the browser asks every time, and is answered 304 by the tag
}


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    kind: str
    tag: str


def routes() -> list[web.RouteDef]:
    assets = {path.name: _asset(path) for path in FOLDER.iterdir() if path.suffix in KINDS}

    async def show_index(request: web.Request) -> web.Response:
        return _answer(request, assets[INDEX])

    async def show_asset(request: web.Request) -> web.Response:
        found = assets.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        return _answer(request, found)

    return [web.get("/", show_index), web.get("/page/{name}", show_asset)]


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(body, KINDS[path.suffix], hashlib.sha256(body).hexdigest()[:16])


def _answer(request: web.Request, asset: Asset) -> web.Response:
    headers = HEADERS | {"ETag": f'"{asset.tag}"'}
    known = request.if_none_match or ()
    if any(each.value == asset.tag for each in known):
        return web.Response(status=304, headers=headers)
    return web.Response(body=asset.body, headers=headers, content_type=asset.kind, charset="utf-8")
