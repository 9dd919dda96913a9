"""Static files of the page: known types only, from one folder only, cached by browsers until they change."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from monitoring.page.page_api import PageError

__all__ = ["Assets"]

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
FOLDER: Final = Path(__file__).parent / "assets"


class Assets:
    """The files of one folder; a changed file is read again."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder.resolve()
        self._read: dict[str, tuple[tuple[int, int], bytes, str]] = {}

    def response(self, name: str, headers: Headers) -> Response:
        """Return one file, or 304 if the browser has it.

        Raises:
            PageError: there is no file of this name.
        """
        kind = TYPES.get(Path(name).suffix)
        if kind is None or not _NAME.fullmatch(name):
            raise PageError(404, "File not found.")
        body, tag = self._content(name)
        caching = {"ETag": tag, "Cache-Control": "no-cache"}
        if tag in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=caching)
        return Response(body, headers={**caching, "Content-Type": kind})

    def has(self, name: str) -> bool:
        """Return whether this file exists."""
        return (self._folder / name).is_file()

    def _content(self, name: str) -> tuple[bytes, str]:
        path = self._folder / name
        try:
            # A link that leads out of the folder is not an asset.
            if not path.resolve().is_relative_to(self._folder):
                raise FileNotFoundError(name)
            state = path.stat()
            key = state.st_mtime_ns, state.st_size
            if (known := self._read.get(name)) is None or known[0] != key:
                body = path.read_bytes()
                known = self._read[name] = key, body, f'"{sha256(body).hexdigest()[:20]}"'
        except (OSError, ValueError):
            raise PageError(404, "File not found.") from None
        return known[1], known[2]
