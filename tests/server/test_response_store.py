"""Which responses are kept: the latest used, each tenant's apart, in bounded room."""

from __future__ import annotations

import pytest

from sapwood.errors import NotFoundError
from sapwood.server.response_store import ResponseStore, StoredResponse


def stored(id: str, size: int = 0) -> StoredResponse:
    output = [{"id": f"msg_{id}", "type": "message", "text": "x" * size}]
    return StoredResponse({"id": id, "output": output}, ({"id": f"in_{id}"},), 20)


def ids(store: ResponseStore, tenant: str, *wanted: str) -> list[str]:
    found = []
    for id in wanted:
        try:
            found.append(str(store.find(tenant, id).response["id"]))
        except NotFoundError:
            continue
    return found


def test_what_goes_on_begins_with_what_came_in_and_then_what_was_said() -> None:
    assert [item["id"] for item in stored("one").history] == ["in_one", "msg_one"]


def test_the_least_recently_used_is_forgotten_first() -> None:
    store = ResponseStore(kept=2)
    for id in ("one", "two"):
        store.keep("a", stored(id))
    store.find("a", "one")
    store.keep("a", stored("three"))
    assert ids(store, "a", "one", "two", "three") == ["one", "three"]


def test_bytes_are_bounded_by_forgetting_the_oldest() -> None:
    store = ResponseStore(kept_bytes=1000)
    for id in ("one", "two", "three"):
        store.keep("a", stored(id, 300))
    assert ids(store, "a", "one", "two", "three") == ["two", "three"]


def test_when_all_is_full_who_has_the_most_forgets() -> None:
    store = ResponseStore(kept_bytes=1000, of_all=1000)
    for tenant, id in (("a", "one"), ("a", "two"), ("b", "three")):
        store.keep(tenant, stored(id, 300))
    assert ids(store, "a", "one", "two") == ["two"]
    assert ids(store, "b", "three") == ["three"]


def test_room_given_back_by_a_deleted_one_is_used_again() -> None:
    store = ResponseStore(kept_bytes=1000)
    for id in ("one", "two"):
        store.keep("a", stored(id, 300))
    store.delete("a", "two")
    store.keep("a", stored("three", 300))
    assert ids(store, "a", "one", "two", "three") == ["one", "three"]


def test_the_same_id_is_kept_once() -> None:
    store = ResponseStore(kept_bytes=1000)
    for _ in range(5):
        store.keep("a", stored("one", 300))
    store.keep("a", stored("two", 300))
    assert ids(store, "a", "one", "two") == ["one", "two"]


def test_one_that_is_larger_than_all_the_room_costs_no_other_its_place() -> None:
    store = ResponseStore(kept_bytes=1000)
    store.keep("a", stored("one", 300))
    store.keep("a", stored("huge", 5000))
    assert ids(store, "a", "one", "huge") == ["one"]


def test_tenants_neither_see_nor_push_out_each_others() -> None:
    store = ResponseStore(kept=2)
    store.keep("a", stored("one"))
    for id in ("one", "two", "three"):
        store.keep("b", stored(id))
    assert ids(store, "a", "one", "two", "three") == ["one"]
    assert ids(store, "b", "one", "two", "three") == ["two", "three"]
    with pytest.raises(NotFoundError):
        store.delete("a", "three")
    with pytest.raises(NotFoundError):
        store.find("c", "one")
