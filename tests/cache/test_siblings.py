from __future__ import annotations

from sapwood.cache.keys import Namespace
from sapwood.cache.siblings import Siblings


def test_a_namespace_is_told_its_tenants_others_and_not_itself() -> None:
    siblings = Siblings()
    a, b, c = (Namespace("m", adapter=adapter, tenant="t") for adapter in ("a", "b", "c"))
    for namespace in (a, b, c, a):
        siblings.saw(namespace)
    assert set(siblings.of(a)) == {b, c}
    assert set(siblings.of(Namespace("m", adapter="new", tenant="t"))) == {a, b, c}


def test_no_tenant_is_told_of_another() -> None:
    siblings = Siblings()
    tenants = ("one", "two", "", None)
    for tenant in tenants:
        siblings.saw(Namespace("m", adapter="x", tenant=tenant))
    for tenant in tenants:
        assert list(siblings.of(Namespace("m", salt="y", tenant=tenant))) == [
            Namespace("m", adapter="x", tenant=tenant)
        ]
    assert list(siblings.of(Namespace("m", tenant="three"))) == []


def test_the_latest_namespaces_of_a_tenant_are_kept() -> None:
    siblings = Siblings()
    for adapter in range(40):
        siblings.saw(Namespace("m", adapter=str(adapter)))
        siblings.saw(Namespace("m", adapter="0"))
    kept = {namespace.adapter for namespace in siblings.of(Namespace("m"))}
    assert kept == {"0", *(str(adapter) for adapter in range(25, 40))}


def test_who_does_not_know_a_salt_is_not_told_what_is_cached_under_it() -> None:
    siblings = Siblings()
    plain, adapted = Namespace("m", salt=""), Namespace("m", adapter="a", salt="s")
    for namespace in (plain, adapted, Namespace("m", salt="t")):
        siblings.saw(namespace)
    assert list(siblings.of(Namespace("m", salt="u"))) == [plain]
    assert list(siblings.of(plain)) == []
    assert list(siblings.of(Namespace("m", salt="s"))) == [plain, adapted]


def test_the_latest_tenants_are_kept() -> None:
    siblings = Siblings()
    for tenant in range(3_000):
        siblings.saw(Namespace("m", tenant=str(tenant)))
        siblings.saw(Namespace("m", tenant="0"))
    assert len(siblings._of) == 1024
    assert list(siblings.of(Namespace("m", salt="s", tenant="0"))) == [Namespace("m", tenant="0")]
    assert list(siblings.of(Namespace("m", salt="s", tenant="5"))) == []
