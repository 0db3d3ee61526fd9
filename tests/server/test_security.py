"""The server runs other people's commands: nobody gets in without a token, and no web page gets in at all."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from whistlestop.client import Client
from whistlestop.domain.errors import Forbidden, Refused, Unauthenticated, WhistleError
from whistlestop.testing.server import ServerProcess

SPEC = {"spec": "name: x\ncommand: 'true'\nkind: task\n"}


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    return shared_server


@pytest.fixture
def paths(server: ServerProcess) -> list[tuple[str, str]]:
    """Every operation of the server's own OpenAPI document."""
    headers = {"Authorization": f"Bearer {server.token}"}
    document = httpx2.get(f"{server.url}/api/v1/openapi.json", headers=headers).json()
    return [(method, path) for path, methods in document["paths"].items() for method in methods]


def test_every_operation_asks_for_a_token(server: ServerProcess, paths: list[tuple[str, str]]) -> None:
    assert len(paths) > 25
    with httpx2.Client() as browser:
        for method, path in [*paths, ("get", "/api/v1/openapi.json")]:
            url = server.url + path.replace("{digest}", "0" * 64).replace("{run}", "1").replace("{name}", "x")
            url = url.replace("{token_id}", "x")
            for token in (None, "wrong", server.token + "x"):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                answer = browser.request(method.upper(), url, headers=headers, content=b"{}")
                assert answer.status_code == 401, (method, path, token, answer.status_code)


def test_a_runs_own_token_opens_nothing_but_its_link(server: ServerProcess) -> None:
    run = server.submit({"name": "t", "kind": "task", "command": ["sleep", "600"]})
    attempt = server.wait(run.id, "running").phases[0].attempts[0]
    launch = json.loads((server.data / "attempts" / attempt.id / "launch.json").read_text())
    answer = httpx2.get(f"{server.url}/api/v1/runs", headers={"Authorization": f"Bearer {launch['token']}"})
    assert answer.status_code == 401


def test_a_page_from_elsewhere_is_refused_even_with_a_token(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "https://" + server.url.removeprefix("http://")[:-1],
    ):
        answer = httpx2.post(f"{server.url}/api/v1/runs", headers={**headers, "Origin": origin}, json=SPEC)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), origin
    own = httpx2.get(f"{server.url}/api/v1/runs", headers={**headers, "Origin": server.url})
    assert own.status_code == 200


def test_a_foreign_host_name_is_refused_so_that_dns_rebinding_gets_nowhere(server: ServerProcess) -> None:
    headers = {"Authorization": f"Bearer {server.token}"}
    port = server.url.rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "[::1"):
        answer = httpx2.get(f"{server.url}/api/v1/runs", headers={**headers, "Host": host})
        assert answer.status_code in (400, 403), host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "localhost"):
        assert httpx2.get(f"{server.url}/api/v1/runs", headers={**headers, "Host": host}).status_code == 200, host


def test_the_runners_link_needs_its_token_and_no_browser_opens_it(server: ServerProcess) -> None:
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.sync.client import connect

    url = server.url.replace("http", "ws") + "/api/v1/runner"
    for token in (None, "wrong", server.token):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with connect(url, additional_headers=headers) as socket, pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    with pytest.raises(InvalidStatus):
        connect(url, origin="http://evil.example")  # type: ignore[arg-type]


def test_private_files_are_readable_by_their_owner_alone(server: ServerProcess) -> None:
    for name in ("token", "secret.key", "server.json"):
        assert stat.S_IMODE((server.data / name).stat().st_mode) == 0o600, name
    run = server.submit({"name": "t", "kind": "task", "command": ["sleep", "600"]})
    attempt = server.data / "attempts" / server.wait(run.id, "running").phases[0].attempts[0].id
    assert stat.S_IMODE(attempt.stat().st_mode) == 0o700
    assert stat.S_IMODE((attempt / "launch.json").stat().st_mode) == 0o600


def test_roles_decide_who_may_do_what(server: ServerProcess, client: Client) -> None:
    tokens = {role: client.create_token(f"a-{role}", role) for role in ("viewer", "member")}  # type: ignore[arg-type]
    with Client(server.url, tokens["viewer"].token) as viewer, Client(server.url, tokens["member"].token) as member:
        assert viewer.runs().runs == []
        with pytest.raises(Forbidden, match="takes a member"):
            viewer.submit(SPEC["spec"])
        run = member.submit(SPEC["spec"])
        assert run.created_by == "a-member"
        for refused in (lambda: viewer.kill(run.id), lambda: member.tokens(), lambda: member.set_secret("a", "b")):
            with pytest.raises(Forbidden):
                refused()
        client.revoke_token(tokens["viewer"].id)
        with pytest.raises(Unauthenticated):
            viewer.runs()
        kept = server.data / "token"
        kept.rename(server.data / "aside")
        kept.mkdir()  # a disk that does not let the file be read
        with pytest.raises(WhistleError, match=r"a-member is revoked, but the file .* can't be read"):
            client.revoke_token("a-member")
        kept.rmdir()
        (server.data / "aside").rename(kept)
        with pytest.raises(Unauthenticated):
            member.runs()
    own = next(token for token in client.tokens() if token.name == "local")
    with pytest.raises(Refused, match="you are using"):
        client.revoke_token(own.id)


def test_tokens_are_not_kept_in_readable_form(server: ServerProcess, client: Client) -> None:
    made = client.create_token("somebody", "member")
    assert made.token is not None
    assert all(token.token is None for token in client.tokens())
    kept = b"".join(path.read_bytes() for path in server.data.glob("whistlestop.db*"))
    assert b"somebody" in kept
    assert made.token.encode() not in kept


def test_a_second_server_on_the_same_directory_is_refused(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "whistlestop", "up", "--port", "0", "--data", str(server.data)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert second.returncode == 1
    assert "another server uses" in second.stderr
    assert server.client().whoami().role == "admin"


def test_it_listens_on_loopback_only(server: ServerProcess) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    port = int(server.url.rpartition(":")[2])
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    mine = [address for address in listening if int(address.split(":")[1], 16) == port]
    assert [address.split(":")[0] for address in mine] == ["0100007F"]
