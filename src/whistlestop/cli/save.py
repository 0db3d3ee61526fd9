"""`whistle save`: a checkpoint now, and the training goes on."""

from typing import TYPE_CHECKING, Annotated

import typer

from whistlestop.cli.options import Json, Note, Run, command, connect

if TYPE_CHECKING:
    from whistlestop.client import Client
    from whistlestop.wire.api import Done, PhaseView, RunView

app = command()


@app.command()
def save(
    run: Run,
    phase: Annotated[str | None, typer.Option(help="Which one. [default: the train phase that runs]")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until the checkpoint is committed; tells its step.")] = False,
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Save a checkpoint at the next step. The training goes on."""
    from whistlestop.cli.following import detached
    from whistlestop.cli.verbs import tell

    with connect() as client:
        done = client.save(run, phase=phase, note=note)
        if wait:
            try:
                done = _wait(client, done, phase)
            except KeyboardInterrupt:
                raise typer.Exit(detached(done.run)) from None
        tell(done, as_json=as_json)


def _wait(client: "Client", done: "Done", name: str | None) -> "Done":
    from whistlestop.cli import words
    from whistlestop.domain.errors import Refused
    from whistlestop.wire.api import RunView

    asked = _phase(done.run, name)
    seq = asked.saves.requested
    for message in client.stream(done.run.id, ["run"]):
        if message.kind != "run":
            continue
        run = RunView.model_validate(message.data, extra="ignore")
        phase = _phase(run, asked.name)
        if phase.saves.done >= seq:
            text = f"phase {phase.name} of run {words.name(run)} is saved at step {phase.saves.step}"
            return done.model_copy(update={"run": run, "text": text})
        if phase.status != "running":
            break
    raise Refused(
        f"phase {asked.name} of run {words.name(done.run)} left before it saved",
        hint=f"what it could go on from: whistle checkpoints {done.run.number}",
    )


def _phase(run: "RunView", name: str | None) -> "PhaseView":
    """The one that was meant: without a name it is the train phase that runs."""
    for phase in run.phases:
        if phase.name == name or (name is None and phase.kind == "train" and phase.status == "running"):
            return phase
    return run.phases[0]
