"""Every error a user can meet. Each says what was wrong and what was expected; `hint` says what to do next.

SapwoodError
├── UsageError            a flag, a config value, a path: the caller must change the call
├── ModelError            a model file is cut, corrupt, unsupported or not there
├── RequestError          one request cannot be served as asked (HTTP 400)
│   ├── ContextLengthError    it is too long for the model's context or the pool
│   ├── DeadEndError          the answer is within its constraint, which lets it go no further
│   └── NotFoundError         it names a model, route or object that is not here (HTTP 404)
├── UnavailableError      the engine is loading, stopping or dead (HTTP 503)
├── OutOfPagesError       the pool cannot give the pages asked for, eviction included
└── BooksError            the cache's own accounting does not add up: a bug of ours, never of the caller
"""

from __future__ import annotations


class SapwoodError(Exception):
    """Base of all errors meant to be read by a person."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class UsageError(SapwoodError):
    pass


class ModelError(SapwoodError):
    pass


class RequestError(SapwoodError):
    """`param` is the JSON path of the offending field, `code` the machine-readable reason."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str = "invalid_value", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


class ContextLengthError(RequestError):
    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded", hint=hint)


class DeadEndError(RequestError):
    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="constraint_dead_end")


class NotFoundError(RequestError):
    pass


class UnavailableError(SapwoodError):
    pass


class OutOfPagesError(SapwoodError):
    pass


class BooksError(SapwoodError):
    pass
