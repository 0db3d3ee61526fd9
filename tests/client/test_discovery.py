"""The client finds its server by itself, and the token of this machine never leaves it."""

import json
from pathlib import Path

import pytest

from whistlestop.client.discovery import DEFAULT_URL, data_dir, find_server
from whistlestop.client.environment import TRAVELS, travelling_environment
from whistlestop.domain.errors import BadRequest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("file-token\n")
    return tmp_path


def left_by_server(data: Path, url: str) -> None:
    (data / "server.json").write_text(json.dumps({"url": url, "pid": 1}))


def test_the_data_directory_is_the_given_one_or_the_usual_one() -> None:
    assert data_dir({"WHISTLE_DATA": "/a"}) == Path("/a")
    assert data_dir({"XDG_DATA_HOME": "/b"}) == Path("/b/whistlestop")
    assert data_dir({}) == Path.home() / ".local/share/whistlestop"


def test_without_anything_the_default_address_is_used(tmp_path: Path) -> None:
    place = find_server(environ={"WHISTLE_DATA": str(tmp_path)})
    assert (place.url, place.token, place.explicit) == (DEFAULT_URL, None, False)


def test_what_the_server_left_is_found(data: Path) -> None:
    left_by_server(data, "http://10.0.0.5:99")
    place = find_server(environ={"WHISTLE_DATA": str(data)})
    assert (place.url, place.token) == ("http://10.0.0.5:99", "file-token")


def test_the_environment_wins_and_an_argument_wins_over_it(data: Path) -> None:
    left_by_server(data, "http://127.0.0.1:1")
    environ = {"WHISTLE_DATA": str(data), "WHISTLE_URL": "http://127.0.0.1:2/", "WHISTLE_TOKEN": "env-token"}
    assert find_server(environ=environ).url == "http://127.0.0.1:2"
    assert find_server(environ=environ).token == "env-token"
    assert find_server("http://127.0.0.1:3", "mine", environ=environ).token == "mine"


def test_the_token_of_this_machine_is_not_sent_to_another_one(data: Path) -> None:
    left_by_server(data, "http://127.0.0.1:7333")
    environ = {"WHISTLE_DATA": str(data)}
    assert find_server("http://evil.example:7333", environ=environ).token is None
    assert find_server("http://127.0.0.1.evil.example", environ=environ).token is None
    assert find_server("http://localhost:8000", environ=environ).token == "file-token"
    assert find_server("http://[::1]:8000", environ=environ).token == "file-token"
    assert "file-token" not in repr(find_server(environ=environ))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 3}', '{"url": "file:///etc"}', "\0"])
def test_a_broken_file_is_as_good_as_none(data: Path, text: str) -> None:
    (data / "server.json").write_text(text)
    assert find_server(environ={"WHISTLE_DATA": str(data)}).url == DEFAULT_URL


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://", "http://x:99999999", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="not the address"):
        find_server(url, environ={})


def test_only_what_starts_the_interpreter_travels() -> None:
    environ = {**dict.fromkeys(TRAVELS, "x"), "AWS_SECRET_ACCESS_KEY": "s", "WHISTLE_TOKEN": "t", "LANG": "\udcff"}
    assert travelling_environment(environ) == dict.fromkeys((n for n in TRAVELS if n != "LANG"), "x")
