"""The documentation is complete: what a user can meet has its line, and every link leads somewhere."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute

import whistlestop
from whistlestop.channel import layout
from whistlestop.domain.errors import WhistleError
from whistlestop.domain.reasons import OUTCOMES, STOP_SAYS, EndReason, StopReason
from whistlestop.domain.states import (
    PHASE_TRANSITIONS,
    RUN_TRANSITIONS,
    AttemptState,
    PhaseState,
    RunState,
    Stage,
)
from whistlestop.domain.stops import Rung
from whistlestop.sdk.driven import Driven
from whistlestop.sdk.looping import EXIT_KILLED
from whistlestop.sdk.nodes import ENV_KEY
from whistlestop.sdk.run import Run
from whistlestop.sdk.step import Step
from whistlestop.sdk.training import EXIT_RANK_DIED
from whistlestop.server import api as server_api
from whistlestop.server.api import access, link, nodes
from whistlestop.server.app import API
from whistlestop.wire.spec_file import parse_spec

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
README, GLOSSARY = ROOT / "README.md", DOCS / "glossary.md"
API_PAGE, STATES, SDK = (DOCS / "reference" / name for name in ("api.md", "states.md", "sdk.md"))
# DESIGN's words, with those that the first ones stand on.
WORDS = (
    "project", "workflow", "run", "phase", "attempt", "runner", "rank", "step", "epoch", "batch", "stop", "pause",
    "kill", "checkpoint", "manifest", "pool", "host", "slot", "credit", "event", "reason", "node of ranks", "decision",
    "stop rule", "parameter", "rehearsal", "mirror",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_page_and_to_a_heading_of_it(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if heading:
            assert heading in _headings(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_is_reached_from_the_readme(page: Path) -> None:
    assert page in _reachable(README)


@pytest.mark.parametrize("command", ["make run", "make test"])
def test_the_readme_has_both_commands_each_alone_in_a_block(command: str) -> None:
    assert f"```\n{command}\n```" in README.read_text()


def test_every_error_code_has_its_line_with_its_status() -> None:
    for error in _errors(WhistleError):
        assert re.search(rf"^\| `{error.code}` \| {error.http} \|", API_PAGE.read_text(), re.MULTILINE), error.code


@pytest.mark.parametrize("states", [RunState, PhaseState, AttemptState, EndReason, StopReason])
def test_every_state_and_reason_has_its_line(states: type[StrEnum]) -> None:
    for state in states:
        assert f"\n| `{state.value}` |" in STATES.read_text(), state


@pytest.mark.parametrize("names", [Stage, Rung])
def test_every_stage_and_rung_is_named(names: type[StrEnum]) -> None:
    assert all(f"`{name.value}`" in STATES.read_text() for name in names)


def test_every_end_reason_is_told_in_the_words_of_its_table() -> None:
    for reason, outcome in OUTCOMES.items():
        line = _row(STATES, reason.value, "Why an attempt ended")
        assert outcome.says in line, reason
        assert f"`{outcome.state.value}`" in line, reason


def test_every_stop_reason_is_told_in_its_words() -> None:
    assert all(says in _row(STATES, reason.value, "Why a phase stopped") for reason, says in STOP_SAYS.items())


@pytest.mark.parametrize(("heading", "table"), [("The run", RUN_TRANSITIONS), ("The phase", PHASE_TRANSITIONS)])
def test_the_drawing_has_every_transition_of_the_table_and_no_other(
    heading: str, table: dict[StrEnum, frozenset[StrEnum]]
) -> None:
    drawn = set(re.findall(r"^ {4}(\w+) --> (\w+)", _section(STATES, heading), re.MULTILINE))
    assert drawn == {(before.value, after.value) for before, afters in table.items() for after in afters}


def test_every_endpoint_has_its_line_with_the_role_that_it_asks_for() -> None:
    routes = list(_routes())
    assert len(routes) > 30
    page = API_PAGE.read_text()
    for route in routes:
        for method in route.methods:
            line = f"\n| `{method} {API}{route.path}` | {_role(route.dependant)} |"
            assert line in page, line


def test_no_line_of_the_api_page_tells_of_an_endpoint_that_is_not_there() -> None:
    there = {f"{method} {API}{route.path}" for route in _routes() for method in route.methods}
    sockets = {f"WS {API}{route.path}" for route in link.router.routes if isinstance(route, APIWebSocketRoute)}
    told = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", API_PAGE.read_text(), re.MULTILINE))
    assert told == there | sockets | {f"GET {API}/openapi.json", "GET /metrics", "GET /healthz"}


@pytest.mark.parametrize("topic", ["event", "log", "points", "progress", "run", "end"])
def test_every_kind_of_server_sent_event_has_its_line(topic: str) -> None:
    assert f"\n| `{topic}` |" in API_PAGE.read_text()


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_every_word_of_the_design(word: str) -> None:
    assert f"\n| **{word}** |" in GLOSSARY.read_text()


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^\| \*\*([^*]+)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)
    assert words == sorted(set(words))


def test_every_public_name_of_a_run_is_in_the_sdk_page() -> None:
    for name in vars(Run):
        if not name.startswith("_"):
            assert f"`{name}" in SDK.read_text(), name


def test_every_public_name_of_the_package_of_a_step_and_of_a_driven_loop_is_in_the_sdk_page() -> None:
    page = SDK.read_text()
    for name in whistlestop.__all__:
        assert f"`whistlestop.{name}" in page, name
    for kind in (Step, Driven):
        for name in (name for name in [*vars(kind), *vars(kind).get("__annotations__", {})] if name[0] != "_"):
            assert f"`{name}" in page, f"{kind.__name__}.{name}"


def test_every_variable_of_the_program_is_in_the_sdk_page() -> None:
    for name in [*(getattr(layout, name) for name in vars(layout) if name.startswith("ENV_")), ENV_KEY]:
        assert f"`{name}" in SDK.read_text(), name


@pytest.mark.parametrize("code", [layout.EXIT_PAUSED, EXIT_RANK_DIED, EXIT_KILLED])
def test_every_exit_code_of_the_sdk_has_its_line(code: int) -> None:
    assert f"\n| {code} |" in SDK.read_text()


def test_every_how_to_is_listed_and_every_example_is_linked() -> None:
    listed = (DOCS / "README.md").read_text()
    assert all(f"(how-to/{page.name})" in listed for page in (DOCS / "how-to").glob("*.md"))
    frameworks = _section(README, "Frameworks")
    own = {"mlp", "pipeline"}  # these show the whole of it, not a framework
    examples = {page.parent.name for page in (ROOT / "examples").glob("*/train.py")} - own
    assert all(f"(examples/{name}/train.py)" in frameworks for name in examples)


@pytest.mark.parametrize("page", sorted((DOCS / "adr").glob("*.md")), ids=lambda page: page.stem)
def test_every_decision_has_its_four_parts_and_its_number(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "How we would know it was wrong"]
    assert page.read_text().startswith(f"# {page.stem[:4]}: ")
    assert f"[{page.stem[:4]}](adr/{page.name})" in (DOCS / "README.md").read_text()


def test_every_whistle_yaml_in_the_guides_is_right() -> None:
    specs = [block for page in PAGES for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(specs) > 2
    for spec in specs:
        parse_spec(spec)


def test_every_python_example_can_be_compiled() -> None:
    blocks = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(blocks) > 2
    for block in blocks:
        compile(block, "example", "exec")


def _errors(base: type[WhistleError]) -> Iterator[type[WhistleError]]:
    """Those of the tree in domain/errors.py; other modules add their own for inside use."""
    if base.__module__ == WhistleError.__module__:
        yield base
    for child in base.__subclasses__():
        yield from _errors(child)


def _routes() -> Iterator[APIRoute]:
    for found in pkgutil.iter_modules(server_api.__path__):
        router = getattr(importlib.import_module(f"{server_api.__name__}.{found.name}"), "router", None)
        yield from (route for route in (router.routes if router else ()) if isinstance(route, APIRoute))


def _role(dependant: Dependant) -> str:
    asked = {dependant.call, *(call for each in dependant.dependencies for call in _calls(each))}
    if nodes.attempt_token in asked:
        return "an attempt's own token"
    return next(role.__name__ for role in (access.admin, access.member, access.viewer) if role in asked)


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from _calls(each)


def _without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def _headings(page: Path) -> set[str]:
    lines = re.findall(r"^#+ (.+)$", _without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", line.lower()).replace(" ", "-") for line in lines}


def _reachable(start: Path) -> set[Path]:
    seen, waiting = set(), [start]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", _without_code(page.read_text()))
        waiting += [(page.parent / target).resolve() for target in targets if not re.match(r"[a-z]+:", target)]
    return seen


def _section(page: Path, heading: str) -> str:
    return page.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def _row(page: Path, value: str, heading: str) -> str:
    found = re.search(rf"^\| `{value}` \|.*$", _section(page, heading), re.MULTILINE)
    assert found, value
    return found[0]
