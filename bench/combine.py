"""Documents of one peer each, and the one that says how ours stands to the best of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import BenchError

Row = Mapping[str, Any]


def save_by_peer(document: Mapping[str, Any], file: Path) -> None:
    """Of several peers each has a document of its own beside `file`, which keeps the best of each row.

    Raises BenchError.
    """
    peers = sorted({row["against"] for row in document["rows"] if row["against"] is not None})
    if len(peers) < 2:
        save(document, file)
        return
    parts = [_part(document, peer) for peer in peers]
    for peer, part in zip(peers, parts, strict=True):
        save(part, file.with_stem(f"{file.stem}-{slug(peer)}"))
    save(best_of_peers(parts), file)


def best_of_peers(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of the peer that is hardest to beat, measure by measure; the rest is the first document's."""
    rows: dict[tuple[str, str], list[Row]] = {}
    for document in documents:
        for row in document["rows"]:
            rows.setdefault((row["scenario"], row["measure"]), []).append(row)
    regime = dict(documents[0]["regime"]) | {"rows": "against the best of the peers, measure by measure"}
    regime |= _joined(documents)
    return {**documents[0], "regime": regime, "rows": [hardest(group) for group in rows.values()]}


def hardest(rows: Iterable[Row]) -> Row:
    """Of rows of one measure the one whose ratio is worst for ours; without ratios, whose peer did best."""
    group = list(rows)
    sign = 1.0 if group[0]["better"] == "higher" else -1.0

    def key(row: Row) -> tuple[bool, float]:
        if row["ratio"] is not None:
            return (False, sign * row["ratio"])
        return (row["peer"] is None, -sign * row["peer"] if row["peer"] is not None else math.inf)

    return min(group, key=key)


def slug(name: str) -> str:
    """A peer's name as part of a file's."""
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _part(document: Mapping[str, Any], peer: str) -> dict[str, Any]:
    regime = dict(document["regime"])
    if peer in regime.get("peers", {}):
        regime["peers"] = {peer: regime["peers"][peer]}
    rows = [_own(row, peer) for row in document["rows"] if row["against"] == peer]
    return {**document, "regime": regime, "rows": rows}


def _own(row: Row, peer: str) -> Row:
    tried = row["regime"].get("settings_tried", {})
    if not tried:
        return row
    kept = {name: values for name, values in tried.items() if name in (peer, "sapwood")}
    rest = {name: value for name, value in row["regime"].items() if name != "settings_tried"}
    return {**row, "regime": {**rest, "settings_tried": kept} if kept else rest}


def _joined(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the documents' regimes say of their peers; flags are told with each peer."""
    peers: dict[str, Any] = {}
    failures: list[str] = []
    for document in documents:
        for name, facts in document["regime"].get("peers", {}).items():
            peers[name] = facts["version"]
        failures += [said for said in document["regime"].get("failures", []) if said not in failures]
    joined: dict[str, Any] = {"peers": peers} if peers else {}
    commits = list(dict.fromkeys(document["commit"] for document in documents))
    if len(commits) > 1:
        joined["measured_at_commits"] = commits
    return joined | ({"failures": failures} if failures else {})


def save(document: Mapping[str, Any], file: Path) -> None:
    """Raises BenchError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BenchError(f"cannot write {file}: {error.strerror or error}") from error
