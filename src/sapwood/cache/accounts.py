"""What each tenant with a quota has in the pool, counted as it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sapwood.cache.keys import Namespace
from sapwood.errors import BooksError


@dataclass(slots=True, eq=False)
class Account:
    """One tenant's pages, over all its namespaces. `pages - leased` can be evicted."""

    tenant: str
    most_pages: int
    """That it may keep."""
    pages: int = 0
    """That the index holds."""
    leased: int = 0
    """Of these, pages that some lease pins."""
    private: int = 0
    """Pages of its leases, not committed yet."""
    leases: int = 0
    waiting: int = 0
    """Sequences of it that wait for a lease. While there are any, only a lack of room makes it give up something."""

    def surplus(self, more: int = 0) -> int:
        """Pages to be evicted if, with so many more, it is to have no more than it may; what is in use stays."""
        over = self.pages + self.private + more - self.most_pages
        return max(0, min(over, self.pages - self.leased))


class Accounts:
    """The accounts by tenant; a tenant without a quota has none. Empty until `open` was called.

    Only who has a lease or waits for one can be over its quota: whoever does neither any more was trimmed.
    """

    def __init__(self) -> None:
        self._of: dict[str, Account] = {}
        self._in_use: dict[Account, None] = {}

    def __iter__(self) -> Iterator[Account]:
        return iter(self._of.values())

    def open(self, most_pages: Mapping[str, int]) -> None:
        """An account for each tenant that is named; nothing of theirs may be cached yet."""
        self._of = {tenant: Account(tenant, most) for tenant, most in most_pages.items()}

    def of(self, namespace: Namespace) -> Account | None:
        return None if namespace.tenant is None else self._of.get(namespace.tenant)

    def began(self, account: Account | None) -> None:
        """A lease began."""
        if account is not None:
            account.leases += 1
            self._in_use[account] = None

    def ended(self, account: Account) -> None:
        account.leases -= 1
        self._leave(account)

    def waits(self, account: Account) -> None:
        """A sequence waits for a lease."""
        account.waiting += 1
        self._in_use[account] = None

    def waits_no_more(self, account: Account) -> None:
        account.waiting -= 1
        self._leave(account)

    def _leave(self, account: Account) -> None:
        if not account.leases and not account.waiting:
            del self._in_use[account]

    def surpluses(self, grower: Account | None, more: int) -> Iterator[tuple[Account, int]]:
        """Who has how much to give up, first the one that wants `more` pages, then all others over their quotas."""
        if grower is not None and (own := grower.surplus(more)):
            yield grower, own
        for account in self._in_use:
            if account is not grower and (own := account.surplus()):
                yield account, own

    def check(self, private: Mapping[Account, int], leases: Mapping[Account, int]) -> None:
        """Compare with a recount of all leases. Raises BooksError. What the index holds it compares itself."""
        for account in self:
            said = (account.private, account.leases, account in self._in_use)
            held = leases.get(account, 0)
            is_so = (private.get(account, 0), held, held + account.waiting > 0)
            if said != is_so:
                raise BooksError(f"{account} is counted as {said}; a recount gives {is_so}")
            if not is_so[2] and account.pages > account.most_pages:
                raise BooksError(f"{account} is over its quota, and nothing of it is in use")

    def check_held(self, pages: Mapping[Account, int], leased: Mapping[Account, int]) -> None:
        """Compare with a recount of what the index holds. Raises BooksError."""
        for account in self:
            is_so = (pages.get(account, 0), leased.get(account, 0))
            if (account.pages, account.leased) != is_so:
                raise BooksError(f"{account} is counted wrongly; a recount gives {is_so} pages and leased")
