"""Answers as JSON, and errors as `{"error": sentence}`."""

from starlette.responses import Response

from monitoring.page.page_api import PageError
from monitoring.page.snapshot_broadcaster import encode_ascii_json

__all__ = ["error_response", "json_response"]


def json_response(value: object, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(
        value if isinstance(value, bytes) else encode_ascii_json(value), status, media_type="application/json"
    )


def error_response(error: PageError) -> Response:
    """Return an error as JSON: one sentence in place of an answer."""
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return Response(encode_ascii_json({"error": str(error)}), error.status, headers, media_type="application/json")
