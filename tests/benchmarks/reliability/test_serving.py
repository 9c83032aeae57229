"""Benchmarks of the server: requests, logs, and a small run of hostile requests."""

import asyncio
import json
import random
import sys
from collections import Counter

import pytest

from benchmarks.reliability import serve_hostile, serve_kill, serve_schema, serve_speed
from benchmarks.reliability.serving import Connection, embedded_images, infer_body
from driftlaw.errors import UsageError

pytest.importorskip("fastapi", reason="needs the extra 'serve'")
pytest.importorskip("uvicorn", reason="needs the extra 'serve'")


def test_every_kind_of_hostile_request_is_made_from_a_seed():
    for kind in serve_hostile.kinds().values():
        first, second = (kind.make(random.Random(3)) for _ in range(2))
        assert first == second
        assert all(isinstance(part, bytes) for part in first)


def test_only_refusals_are_no_failure():
    found = Counter({"400": 3, "413": 1, "503": 1, "200": 2, "500": 1, "307": 1, "no answer": 1})
    assert serve_hostile.failures(found) == 5


@pytest.mark.small_batches
def test_hostile_requests_are_refused_and_clean_ones_predicted():
    rows, summary = serve_hostile.attack_server(60, 20, 8, 1, 2, "norm", 0, lambda text: None)
    assert (summary["requests"], summary["clean"]) == (60, 3)
    assert (summary["failures"], summary["wrong_clean"], summary["crashed"]) == (0, 0, False), summary["examples"]
    assert sum(row["requests"] for row in rows) == 60
    assert next(row for row in rows if row["kind"] == "100 MB body")["outcomes"] == {"413": 1}


def test_generated_requests_need_schemathesis(monkeypatch):
    monkeypatch.setitem(sys.modules, "schemathesis", None)
    with pytest.raises(UsageError, match="pip install schemathesis"):
        serve_schema.send_generated(1, 1, "norm", 0, print)


@pytest.mark.small_batches
def test_answers_to_generated_requests_fit_the_document():
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    summary = serve_schema.send_generated(60, 20, "norm", 0, lambda text: None)
    assert (summary["requests"], summary["clean"]) == (60, 3)
    assert (summary["failures"], summary["wrong_clean"], summary["crashed"]) == (0, 0, False), summary["examples"]
    assert sum(row["requests"] for row in summary["rows"]) == 60


def test_a_cut_off_line_of_the_request_log_is_ignored(tmp_path):
    lines = [{"id": "a", "status": 200, "step": 1}, {"id": "b", "status": 429}, {"status": 200, "step": 2}]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": "c", "sta')
    assert list(serve_kill.read_log(path)) == ["a"]


def test_throughput_is_that_of_all_rounds():
    row = serve_speed.summarize("law", 2, 4, [(2.0, [0.1] * 10), (2.0, [0.2] * 10)])
    assert (row["images_per_second"], row["rounds"], row["requests"]) == (20.0, [20.0, 20.0], 20)
    assert row["p50_ms"] == pytest.approx(150)


def test_connections_send_requests_and_read_answers():
    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        text = json.dumps({"bytes": len(body)}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        await writer.drain()
        writer.close()

    async def check():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            connection = Connection(server.sockets[0].getsockname()[1])
            body, headers = infer_body(embedded_images(2))
            status, found = await connection.post("/", body, headers)
            connection.close()
            return status, json.loads(found), len(body)

    status, found, length = asyncio.run(check())
    assert (status, found) == (200, {"bytes": length})
