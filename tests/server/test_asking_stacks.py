"""In a gang that hangs the first node's word makes the server ask the others for their stacks, each once."""

from pathlib import Path

from whistlestop.server.services import runner_events
from whistlestop.server.services.hub import Hub
from whistlestop.testing.world import world
from whistlestop.wire.frames import RunnerEvent, Stacks, pack_record, split_records


def test_what_was_asked_and_not_taken_yet_is_not_asked_twice() -> None:
    hub = Hub()
    for asked in ("stuck", "x-1", "stuck"):
        hub.ask_stacks("a", [1], Stacks(asked))
    assert hub.stacks_asked("a", 1) == [Stacks("stuck"), Stacks("x-1")]
    hub.ask_stacks("a", [1], Stacks("stuck"))
    assert hub.stacks_asked("a", 1) == [Stacks("stuck")], "the next hang is another one"


def test_of_nodes_that_all_say_that_they_hang_only_the_first_has_the_others_asked(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        run = here.submit("name: x\ncommand: 'true'\nnodes: 2\n").id
        here.settle()
        attempt, hub = here.attempt(run), here.context.hub

        def say(node: int) -> list[list[Stacks]]:
            bodies, _ = split_records(pack_record(RunnerEvent(here.now, "stuck", "no step for 61 s", {})))
            with here.context.database.write() as connection:
                runner_events.apply(here.context, connection, attempt, bodies, node=node)
            return [hub.stacks_asked(attempt.id, each) for each in range(2)]

        assert say(1) == [[], []]
        assert say(0) == [[], [Stacks("stuck")]]
