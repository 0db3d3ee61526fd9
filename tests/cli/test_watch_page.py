"""`whistle watch` as a page: a real server, real training, and somebody at the keys."""

import os
import pty
import struct
import tempfile
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from tests.cli.conftest import own_process
from tests.cli.watching_kit import Person, becomes, on_page, sees, shown, training

from whistlestop.cli.watching.app import WatchApp
from whistlestop.client import Client
from whistlestop.testing.server import ServerProcess
from whistlestop.testing.wait import until


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory(prefix="whistle-") as directory, ServerProcess(Path(directory) / "s") as made:
        yield made


def test_the_page_shows_the_run_and_a_stop_by_key_keeps_its_result(server: ServerProcess, tmp_path: Path) -> None:
    run = training(server, tmp_path, "paged", {"name": "after", "kind": "task", "command": "echo [red]done"})

    async def story(app: WatchApp, person: Person) -> None:
        await sees(app, person, "paged", "running", "training", "/5,000 batches", "E0", "loss", "val_loss", "step 0")
        text = await sees(app, person, "elapsed", "credits", "/100,000", "after train", "submitted", "left", "lr")
        assert "[red]not red[/red] [@click=app.quit]x[/] end" in text
        names = [name for name in app.screen.query_one("#charts").listed if not name.startswith("system/")]  # type: ignore[attr-defined]
        assert names == ["loss", "val_loss", "lr", "grad_norm", "[red]x[/red]"]
        assert "\x1b" not in text
        await becomes(app, person, lambda: any("\u2801" <= at <= "\u28ff" for at in shown(app)), "dots of braille")
        await becomes(app, person, lambda: "┿" in shown(app) and "┼" in shown(app), "marks of epochs")
        await person.press("l")
        await sees(app, person, "log scale")
        await person.press("tab", "right")
        await sees(app, person, "[red]x[/red]")
        await person.press("shift+tab", "question_mark")
        await sees(app, person, "stop the chosen phase at its next step")
        await person.press("escape", "down", "s")
        await sees(app, person, "after is a task")
        await person.press("up", "s")
        await sees(app, person, "Stop phase train of #", "kept", "goes on")
        await person.press("escape")
        await person.pause()
        assert not server.client().run(run.id).phases[0].stop_requested
        await person.press("s")
        await sees(app, person, "Stop phase train of #")
        await person.press("enter")
        await becomes(app, person, lambda: app.return_value is not None, "the page to end with the run")

    ended = on_page(server.client(), run, story).return_value
    assert ended is not None
    assert ended.status == "completed"
    assert ended.phases[0].stop_reasons[0].reason == "manually_stopped"


def test_a_run_is_paused_resumed_and_killed_with_a_note_by_key(server: ServerProcess, tmp_path: Path) -> None:
    run = training(server, tmp_path, "keyed")

    async def story(app: WatchApp, person: Person) -> None:
        await sees(app, person, "running", "/5,000 batches")
        await person.press("p")
        await sees(app, person, "Pause #", "kept")
        await person.press("enter")
        await sees(app, person, "waiting")
        await sees(app, person, "Resume")
        await person.press("p")
        await sees(app, person, "from its newest checkpoint")
        await person.press("enter")
        await becomes(app, person, lambda: app.known.run.status == "running", "the run to go on")
        await person.press("k")
        await sees(app, person, "permanently kill keyed. Are you sure", "credits", "lost", "kept")
        await person.press(*"wrong", "space", *"data", "enter")
        await person.pause()
        assert server.client().run(run.id).requested is None, "enter in the note must not kill yet"
        await person.press("enter")
        await becomes(app, person, lambda: app.return_value is not None, "the page to end with the run")

    ended = on_page(server.client(), run, story).return_value
    assert ended is not None
    assert (ended.status, ended.note) == ("killed", "wrong data")


def test_log_and_events_are_read_searched_and_not_taken_away(server: ServerProcess, tmp_path: Path) -> None:
    run = training(server, tmp_path, "logged")

    async def story(app: WatchApp, person: Person) -> None:
        log, events = app.screen.query_one("#log"), app.screen.query_one("#events")
        await sees(app, person, "step 0")
        await person.press("slash", *"FIRST", "enter")
        await sees(app, person, "1 of 1 matches", "plain first line")
        server.client().kill(run.id)
        await becomes(app, person, lambda: app.known.over, "the end")
        await sees(app, person, "The run was killed. q leaves.", "1 of 1 matches")
        await person.press("escape", "home")
        assert not log.following  # type: ignore[attr-defined]
        assert app.return_value is None
        await person.press("tab")
        assert app.screen.focused is events
        await person.press("slash", *"killed", "enter")
        await becomes(app, person, lambda: events.sought == "killed", "the search")  # type: ignore[attr-defined]
        await person.press("q")

    ended = on_page(server.client(), run, story).return_value
    assert ended is not None
    assert ended.status == "killed"


def test_every_terminal_shows_the_status_and_reaches_every_pane(server: ServerProcess, tmp_path: Path) -> None:
    run = training(server, tmp_path, "a name that is much longer than any narrow terminal is wide. dots and all")
    until(lambda: server.client().series(run.id).series, within=60, what="a metric")
    server.client().kill(run.id)
    server.wait(run.id)

    async def story(app: WatchApp, person: Person) -> None:
        for size in ((40, 12), (64, 24), (50, 90), (260, 30)):
            person.resize(*size)
            await becomes(app, person, lambda: max(map(len, shown(app).splitlines())) == size[0], size)  # noqa: B023
            await sees(app, person, "killed")
            for name in ("charts", "log", "events", "phases"):
                await person.press("tab")
                await becomes(app, person, lambda: _stands(app, name), name)  # noqa: B023
        await person.press("z", "c")
        await sees(app, person, "enter shows them", "[red]x[/red]")
        await person.press("n", "space", "enter")
        await becomes(app, person, lambda: app.screen.query_one("#charts").listed == ["loss"], "the choice")  # type: ignore[attr-defined]
        await person.press("t", "q")

    assert on_page(server.client(), run, story, stay=True).return_value is not None


def _stands(app: WatchApp, name: str) -> bool:
    focused = app.screen.focused
    return focused is not None and focused.id == name and focused.size.height > 0


def test_a_lost_server_is_said_and_healed(server: ServerProcess, tmp_path: Path) -> None:
    run = training(server, tmp_path, "healed")

    async def story(app: WatchApp, person: Person) -> None:
        await sees(app, person, "training")
        server.kill()
        await sees(app, person, "The server has been lost for")
        await person.press("k")
        await sees(app, person, "The server can't be reached")
        server.start()
        await becomes(app, person, lambda: "has been lost" not in shown(app), "the server to be found again")
        step = app.known.run.phases[0].progress.step
        await becomes(app, person, lambda: app.known.run.phases[0].progress.step > step, "progress")
        # A runner's progress is shown at once, its words once they are on the disk.
        await becomes(app, person, lambda: app.known.run.status == "running", "the status")
        await person.press("q")

    # By its data directory, as people have it: the server comes back at another port.
    client = Client(environ={"WHISTLE_DATA": str(server.data)})
    assert on_page(client, run, story).return_value is None
    client.close()
    assert server.client().run(run.id).status == "running"
    server.client().kill(run.id)


def test_at_a_real_terminal_q_leaves_the_run_alone(server: ServerProcess, tmp_path: Path) -> None:
    run = training(server, tmp_path, "terminal")
    mine, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    words = ("watch", str(run.number))
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    process = own_process(server.data, tmp_path, *words, **streams, env_more={"TERM": "xterm-256color"})
    os.close(theirs)
    said = _read_until(mine, "Phases", "batches")
    os.write(mine, b"q")
    said += _read_until(mine, "it goes on")
    assert process.wait(60) == 130
    os.close(mine)
    assert "\x1b[?1049h" in said, "the page has a screen of its own"
    assert "\x1b[?1049l" in said, "and gives it back"
    assert server.client().run(run.id).status == "running"
    server.client().kill(run.id)


def _read_until(terminal: int, *texts: str) -> str:
    said = b""

    def read() -> bool:
        nonlocal said
        said += os.read(terminal, 65536)
        return all(text.encode() in said for text in texts)

    until(read, within=60, what=f"{texts} on the terminal")
    return said.decode("utf-8", "replace")
