"""Requests that make no sense get a clear answer, on every database."""

import httpx2
import pytest

from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.wire import api


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


def test_nul_characters_are_refused_wherever_they_stand() -> None:
    for body in (
        {"workflow": "a\0"},
        {"spec": "a", "set": ["x\0"]},
        {"spec": "a", "env": {"A": "\0"}},
        {"spec": "a", "env": {"A\0": ""}},
    ):
        with pytest.raises(ValueError, match="NUL"):
            api.Submit.model_validate(body)


def test_a_nul_in_the_address_is_refused(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    for path in ("/runs/a%00b", "/runs?search=a%00b"):
        answer = httpx2.get(f"{server.url}/api/v1{path}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), path


def test_errors_are_problem_json_with_a_code_and_what_to_do(server: ServerProcess, client: Client) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = httpx2.get(f"{server.url}/api/v1/runs/nobody", headers=headers)
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (404, "not_found")
    assert body["hint"]
    for method, path, status in (
        ("GET", "/api/v1/nothing", 404),
        ("DELETE", "/api/v1/runs", 405),
        ("POST", "/api/v1/runs", 422),
        ("GET", "/api/v1/runs?limit=0", 422),
    ):
        answer = httpx2.request(method, server.url + path, headers=headers, content=b"not json")
        assert answer.status_code == status, (method, path)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] in ("not_found", "bad_request")


def test_every_mistake_of_a_spec_is_in_one_answer_with_its_line(client: Client) -> None:
    text = "name: x\nphases:\n- name: a\n  comand: echo\n  slots: many\n- name: a\n  command: echo\n  kind: tain\n"
    checked = client.check(text)
    found = {(item.line, item.path) for item in checked.problems}
    assert {4, 5, 8} <= {line for line, _ in found}
    assert any('"command"' in (item.hint or item.text) or "command" in (item.hint or "") for item in checked.problems)


def test_the_same_key_is_the_same_run(server: ServerProcess, client: Client) -> None:
    text = "name: x\ncommand: 'true'\nkind: task\n"
    first = client.submit(text, key="once")
    assert client.submit(text, key="once").id == first.id
    assert len(client.runs().runs) == 1
    assert client.rerun(first.id, key="again").id == client.rerun(first.id, key="again").id
    assert client.rerun(first.id).id != client.rerun(first.id).id, "who gives no key means another run"
    assert len(client.runs().runs) == 4
    assert server.complaints() == []


def test_the_whole_server_works_on_postgresql(start_server: object, empty_postgres_url: str) -> None:
    server: ServerProcess = start_server(slots=1, extra=["--db", empty_postgres_url])  # type: ignore[operator]
    script = "printf 'a\\0b\\n'; echo done"
    run = server.submit({"name": "t", "kind": "task", "command": ["bash", "-c", script]}, name="pg")
    assert server.wait(run.id).status == "completed"
    assert "done" in server.logs(run.id)
    server.kill()
    server.start()
    assert server.client().run("pg").status == "completed"
