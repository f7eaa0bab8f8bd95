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
        siblings.saw(Namespace("m", salt="x", tenant=tenant))
    for tenant in tenants:
        assert list(siblings.of(Namespace("m", salt="y", tenant=tenant))) == [
            Namespace("m", salt="x", tenant=tenant)
        ]
    assert list(siblings.of(Namespace("m", tenant="three"))) == []


def test_the_latest_namespaces_of_a_tenant_are_kept() -> None:
    siblings = Siblings()
    for salt in range(40):
        siblings.saw(Namespace("m", salt=str(salt)))
        siblings.saw(Namespace("m", salt="0"))
    kept = {namespace.salt for namespace in siblings.of(Namespace("m"))}
    assert kept == {"0", *(str(salt) for salt in range(25, 40))}


def test_the_latest_tenants_are_kept() -> None:
    siblings = Siblings()
    for tenant in range(3_000):
        siblings.saw(Namespace("m", tenant=str(tenant)))
        siblings.saw(Namespace("m", tenant="0"))
    assert len(siblings._of) == 1024
    assert list(siblings.of(Namespace("m", salt="s", tenant="0"))) == [Namespace("m", tenant="0")]
    assert list(siblings.of(Namespace("m", salt="s", tenant="5"))) == []
