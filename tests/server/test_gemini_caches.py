"""The store of cached contents: bounded, fair between tenants, and true to its promises."""

from __future__ import annotations

import pytest

from sapwood.chat import Conversation, Message
from sapwood.chat.gemini_prefix import CachedPrefix
from sapwood.server.gemini_caches import CachedContents, NewContent
from sapwood.server.gemini_wire import CachedContentGoneError, CachedContentsFullError
from server.conftest import Clock


def content(tokens: int = 1000) -> NewContent:
    conversation = Conversation((Message("user", ("x",)),))
    return NewContent("toy", "", CachedPrefix(conversation, "x", tuple(range(tokens)), False), None)


def store(room: int = 10**6) -> tuple[CachedContents, Clock]:
    clock = Clock(50.0)
    return CachedContents(clock, lambda: 1000.0, room), clock


def fill(objects: CachedContents, tenant: str) -> int:
    """How many objects a tenant can have."""
    for count in range(1000):
        try:
            objects.add(tenant, content(), lambda now: now + 60)
        except CachedContentsFullError:
            return count
    raise AssertionError("there is no end")


def test_times_are_since_1970_and_go_on_with_the_clock_that_is_ahead() -> None:
    clock, wall = Clock(50.0), Clock(1000.0)
    objects = CachedContents(clock, wall)
    made = objects.add("a", content(), lambda now: now + 60)
    assert (made.created, made.expires) == (1000.0, 1060.0)
    clock.now += 20
    assert objects.now() == 1020.0
    wall.now += 61
    with pytest.raises(CachedContentGoneError):
        objects.get("a", made.id)


def test_the_moment_of_expiry_is_past_it() -> None:
    objects, clock = store()
    made = objects.add("a", content(), lambda now: now + 60)
    clock.now += 59.9
    assert objects.get("a", made.id) is made
    clock.now += 0.1
    with pytest.raises(CachedContentGoneError):
        objects.get("a", made.id)


def test_ids_are_of_one_tenant_and_cannot_be_guessed() -> None:
    objects, _ = store()
    ids = {objects.add(tenant, content(), lambda now: now + 60).id for tenant in "aabb"}
    assert len({len(id) for id in ids}) == 1
    assert len(ids) == 4
    for id in ids:
        assert sum(_has(objects, tenant, id) for tenant in "abc") == 1


def _has(objects: CachedContents, tenant: str, id: str) -> bool:
    try:
        objects.get(tenant, id)
    except CachedContentGoneError:
        return False
    return True


def test_a_tenant_has_half_of_what_the_others_leave_and_loses_nothing_to_them() -> None:
    objects, _ = store()
    counts = [fill(objects, tenant) for tenant in "abcd"]
    assert counts[0] == 10**6 // 2 // content().cost
    assert counts == sorted(counts, reverse=True)
    assert counts[1] == pytest.approx(counts[0] / 2, abs=1)
    assert counts[3] >= 1, "there is always some for one more"
    assert len(objects.page("a", 1000, 0).objects) == counts[0]


def test_room_comes_back_when_objects_expire_or_are_deleted() -> None:
    objects, clock = store()
    most = fill(objects, "a")
    with pytest.raises(CachedContentsFullError):
        objects.check_room("a", content())
    objects.delete("a", objects.page("a", 1, 0).objects[0].id)
    objects.check_room("a", content())
    clock.now += 61
    assert fill(objects, "b") == most, "what expired takes no room of others either"
    assert objects.page("a", 10, 0).objects == ()


def test_a_refusal_and_a_lifetime_that_is_none_leave_everything_as_it_was() -> None:
    objects, _ = store()
    made = objects.add("a", content(), lambda now: now + 60)

    def none(_now: float) -> float:
        raise ValueError("it has passed")

    with pytest.raises(ValueError, match="passed"):
        objects.add("a", content(), none)
    with pytest.raises(ValueError, match="passed"):
        objects.renew("a", made.id, none)
    with pytest.raises(CachedContentsFullError):
        objects.add("a", content(10**6), lambda now: now + 60)
    assert objects.page("a", 10, 0).objects == (made,)


def test_a_renewed_one_keeps_its_place_and_its_beginning() -> None:
    objects, clock = store()
    first, second = (objects.add("a", content(), lambda now: now + 60) for _ in range(2))
    clock.now += 10
    renewed = objects.renew("a", first.id, lambda now: now + 5)
    assert (renewed.created, renewed.updated, renewed.expires) == (1000.0, 1010.0, 1015.0)
    assert objects.page("a", 10, 0).objects == (renewed, second)
    page = objects.page("a", 1, 0)
    assert (page.objects, page.next) == ((renewed,), first.number)
    assert objects.page("a", 1, first.number).next is None
