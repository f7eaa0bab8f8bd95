from __future__ import annotations

import io
import json

from sapwood.server.log import Record, RequestLog


def written(record: Record, *, as_json: bool) -> str:
    out = io.StringIO()
    RequestLog(as_json=as_json, out=out).write(record)
    return out.getvalue()


def test_a_dropped_stream_leaves_a_full_record() -> None:
    record = Record("1", "POST", "/v1/completions", 200, "cancelled", 10, 8, {"last_token": 2}, 3, 0.1, 0.5)
    assert json.loads(written(record, as_json=True)) == {
        "id": "1",
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "ending": "cancelled",
        "prompt_tokens": 10,
        "reused_tokens": 8,
        "missed_tokens": {"last_token": 2},
        "completion_tokens": 3,
        "first_token_seconds": 0.1,
        "seconds": 0.5,
        "tenant": "",
    }
    line = written(record, as_json=False)
    assert line == "POST /v1/completions · 200 · reused 8 of 10 tokens · wrote 3 · 0.50 s · cancelled\n"


def test_a_record_says_whose_request_it_was() -> None:
    record = Record("1", "GET", "/v1/models", 200, tenant="team-a")
    assert written(record, as_json=False) == "GET /v1/models · 200 · team-a · 0.00 s\n"
    assert json.loads(written(record, as_json=True))["tenant"] == "team-a"


def test_health_polls_are_not_logged_but_failures_are() -> None:
    assert written(Record("1", "GET", "/health", 200), as_json=True) == ""
    assert written(Record("1", "GET", "/health", 500, "failed"), as_json=True) != ""


def test_a_path_cannot_write_to_the_terminal() -> None:
    line = written(Record("1", "GET", "/\x1b[2J\nfake line", 404), as_json=False)
    assert line.count("\n") == 1
    assert "\x1b" not in line
