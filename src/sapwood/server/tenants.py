"""The tenants of a server, from the file of `--api-keys`. Only hashes of the keys are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sapwood.errors import UsageError
from sapwood.server.caller import Caller
from sapwood.server.ports import Built
from sapwood.server.public_text import MOST_TEXTS, PublicText, read_public_text

_T = TypeVar("_T")

_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_KEY = re.compile(r"[!-~]{1,1024}")
"""What a header can carry, and no HTTP software trims or splits."""
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_KEY_FIELDS = ("key", "key_sha256", "key_env")
_FIELDS = ("name", *_KEY_FIELDS, "operator", "max_hot_tokens")


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    key_sha256: bytes = field(repr=False)
    operator: bool = False
    max_hot_tokens: int | None = None
    """Tokens of the pool that its prefixes may keep; None: as many as there are."""


class Tenants:
    """All tenants, found by their keys."""

    def __init__(self, tenants: Iterable[Tenant], public: Iterable[PublicText] = ()) -> None:
        """Raises UsageError if there are no tenants, or if two have one name or one key."""
        self._tenants, self._public = tuple(tenants), _named(public)
        if not self._tenants:
            raise UsageError("there is no [[tenant]], so nobody could ask anything", hint="add one")
        names: set[str] = set()
        owners: dict[bytes, str] = {}
        for tenant in self._tenants:
            if tenant.name in names:
                raise UsageError(f"two tenants are called {tenant.name!r}")
            if tenant.key_sha256 in owners:
                other = owners[tenant.key_sha256]
                raise UsageError(f"the tenants {other!r} and {tenant.name!r} have the same key")
            names.add(tenant.name)
            owners[tenant.key_sha256] = tenant.name

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the file."""
        return tuple(tenant.name for tenant in self._tenants)

    @property
    def quotas(self) -> Mapping[str, int]:
        """Tokens that each may keep, of those that have a limit."""
        return {t.name: t.max_hot_tokens for t in self._tenants if t.max_hot_tokens is not None}

    def move_into(self, built: Built) -> None:
        """Tell a model that serves nobody yet what its tenants may keep, and compute for it what they share.

        Blocks. Raises UsageError if that cannot be held.
        """
        if self.quotas:
            built.loop.limit(self.quotas)
        if self._public:
            built.loop.publish(
                {name: text.tokens(built.tokenizer, built.template) for name, text in self._public.items()}
            )

    def find(self, key: bytes) -> Caller | None:
        """Whose key it is. Takes as long for a wrong key as for a right one."""
        digest = hashlib.sha256(key).digest()
        found: Caller | None = None
        for tenant in self._tenants:
            if hmac.compare_digest(digest, tenant.key_sha256):
                found = Caller(tenant.name, tenant.operator)
        return found


def load_tenants(path: Path, environ: Mapping[str, str]) -> Tenants:
    """Reads the file; `environ` is where `key_env` is looked up. Raises UsageError, which never tells a key."""
    document = _read(path)
    try:
        _refuse_unknown(
            document, ("tenant", "public_prefix"), "there may be [[tenant]] and [[public_prefix]]"
        )
        public = _each(document, "public_prefix", lambda table: read_public_text(table, path.parent))
        return Tenants(_tenants(document, environ), public)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _named(public: Iterable[PublicText]) -> Mapping[str, PublicText]:
    texts: dict[str, PublicText] = {}
    for text in public:
        if text.name in texts:
            raise UsageError(f"two public prefixes are called {text.name!r}")
        texts[text.name] = text
    if len(texts) > MOST_TEXTS:
        raise UsageError(f"there are {len(texts)} public prefixes; there may be {MOST_TEXTS}")
    return texts


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(
            f"cannot read the tenants file {path}: {error.strerror or error}",
            hint="--api-keys takes a TOML file with a [[tenant]] for each",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        # The file holds keys: of its text only the place is told.
        place = re.search(r"\(at [^)]*\)$", str(error))
        raise UsageError(f"{path} is not valid TOML {place.group() if place else ''}".rstrip()) from None


def _tenants(document: Mapping[str, Any], environ: Mapping[str, str]) -> Iterable[Tenant]:
    return _each(document, "tenant", lambda table: _tenant(table, environ))


def _each(document: Mapping[str, Any], kind: str, read: Callable[[Mapping[str, Any]], _T]) -> Iterable[_T]:
    """The tables of one kind, read one by one; what is wrong is said with the number of its table."""
    tables = document.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{kind!r} must be written as [[{kind}]], one for each")
    for number, table in enumerate(tables, 1):
        try:
            yield read(table)
        except UsageError as error:
            raise UsageError(f"[[{kind}]] number {number}: {error.message}", hint=error.hint) from None


def _tenant(table: Mapping[str, Any], environ: Mapping[str, str]) -> Tenant:
    _refuse_unknown(table, _FIELDS, f"the fields are {', '.join(_FIELDS)}")
    name, operator = _text(table, "name"), table.get("operator", False)
    if not _NAME.fullmatch(name):
        raise UsageError(f"name is {name[:100]!r}; it must have 1 to 64 letters, digits or any of . _ : -")
    if not isinstance(operator, bool):
        raise UsageError(f"operator is {str(operator)[:100]}; it must be true or false")
    return Tenant(name, _digest(table, environ), operator, _quota(table))


def _quota(table: Mapping[str, Any]) -> int | None:
    quota = table.get("max_hot_tokens")
    if quota is not None and (type(quota) is not int or quota < 0):
        raise UsageError(
            f"max_hot_tokens is {str(quota)[:100]}; it must be a whole number of tokens, 0 or more",
            hint="leave it out to let this tenant keep whatever the pool has room for",
        )
    return quota


def _digest(table: Mapping[str, Any], environ: Mapping[str, str]) -> bytes:
    given = [name for name in _KEY_FIELDS if name in table]
    if len(given) != 1:
        raise UsageError(
            f"it has {' and '.join(given) or 'no key'}; it must have one of {', '.join(_KEY_FIELDS)}"
        )
    value = _text(table, given[0])
    if given[0] == "key_sha256":
        if not _SHA256.fullmatch(value):
            raise UsageError("key_sha256 is not the 64 hex digits of a SHA-256")
        return bytes.fromhex(value)
    if given[0] == "key_env":
        if not environ.get(value):
            raise UsageError(f"the environment has no {value[:100]!r}, which key_env names, or it is empty")
        value = environ[value]
    if not _KEY.fullmatch(value):
        raise UsageError("its key must have 1 to 1024 characters, all of them ASCII and none of them a space")
    return hashlib.sha256(value.encode()).digest()


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is missing or empty" if not value else f"{name} must be a string")
    return value


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], said: str) -> None:
    for name in table:
        if name not in known:
            raise UsageError(f"there is no field {name[:100]!r}; {said}")
