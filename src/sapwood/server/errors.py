"""Every failure as the body that OpenAI clients read: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import TypeVar

from starlette.exceptions import HTTPException

from sapwood.chat import Json
from sapwood.errors import NotFoundError, OutOfPagesError, RequestError, SapwoodError, UnavailableError

_Said = TypeVar("_Said", str, str | None)

MAX_PATH = 100
"""Characters of a path that are said back."""


class BodyTooLargeError(RequestError):
    """The body is longer than the server takes (HTTP 413)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request body is longer than the limit of {limit} bytes", code="body_too_large")


class BodyTimeoutError(RequestError):
    """The rest of the body does not come (HTTP 408)."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing more of the body came for {seconds:.0f} s", code="body_timeout")


class BodyNotReadError(UnavailableError):
    """The server stops before the body is there (HTTP 503)."""

    def __init__(self) -> None:
        super().__init__("the server is stopping")


class FramingError(RequestError):
    """The request says in two ways where its body ends (HTTP 400); a proxy may read another end than we do."""

    def __init__(self) -> None:
        super().__init__(
            "a request may have Content-Length or Transfer-Encoding, not both", code="bad_framing"
        )


class AuthenticationError(RequestError):
    """No key, or one that is nobody's (HTTP 401)."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, code="invalid_api_key", hint=hint)


class OperatorOnlyError(RequestError):
    """The key is fine, but what it asks for would show or change other tenants' things (HTTP 403)."""

    def __init__(self, route: str) -> None:
        super().__init__(
            f"{route} is for operators; this API key is a tenant's",
            code="operator_only",
            hint="use a key with operator = true in the server's tenants file",
        )


class EngineFailedError(SapwoodError):
    """The engine gave up on one request (HTTP 500); the message is the engine's own."""


class ClientGoneError(Exception):
    """Nobody is left to answer."""


def status_of(error: Exception) -> int:
    """The HTTP status for an error."""
    match error:
        case HTTPException():
            return error.status_code
        case BodyTooLargeError():
            return 413
        case BodyTimeoutError():
            return 408
        case AuthenticationError():
            return 401
        case OperatorOnlyError():
            return 403
        case NotFoundError():
            return 404
        case RequestError():
            return 400
        case UnavailableError() | OutOfPagesError():
            return 503
        case _:
            return 500


def error_json(error: Exception) -> Json:
    """The body. Of an unforeseen error it tells nothing but that it happened: the log has the rest."""
    status = status_of(error)
    kind = "invalid_request_error" if status < 500 else "server_error"
    param, code = (error.param, error.code) if isinstance(error, RequestError) else (None, _code(status))
    return {"error": {"message": _text(_message(error)), "type": kind, "param": _text(param), "code": code}}


def error_headers(error: Exception) -> dict[str, str]:
    """Only what may pass by itself (503) invites the SDKs to try again."""
    status = status_of(error)
    headers = {"retry-after": "1"} if status == 503 else {"x-should-retry": "false"}
    if isinstance(error, HTTPException) and error.headers:
        headers.update(error.headers)
    if isinstance(error, AuthenticationError):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, BodyTooLargeError | BodyTimeoutError | BodyNotReadError | FramingError):
        headers["connection"] = "close"  # What is left of the body is not read.
    return headers


def route_error(error: HTTPException, method: str, path: str) -> RequestError | HTTPException:
    """What the router could not place, said in our words."""
    path = path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}…"
    if error.status_code == 404:
        return NotFoundError(f"there is no route {method} {path}", code="unknown_url")
    if error.status_code == 405:
        detail = f"{method} is not allowed on {path}"
        return HTTPException(405, detail, headers=error.headers)
    return error


def _message(error: Exception) -> str:
    if isinstance(error, SapwoodError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, HTTPException):
        return error.detail
    return "internal error; the server's log has the details"


def _text(said: _Said) -> _Said:
    """What a client wrote and is told again may hold half of a surrogate pair, which cannot be sent."""
    return said if said is None else said.encode("utf-8", "replace").decode()


def _code(status: int) -> str | None:
    return {405: "method_not_allowed", 503: "unavailable", 500: "internal_error"}.get(status)
