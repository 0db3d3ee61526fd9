"""One method per endpoint of /api/v1, each returning the shapes of wire/api.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel

from whistlestop.client.alerts import AlertCalls
from whistlestop.client.losses import LossCalls
from whistlestop.client.pages import joined
from whistlestop.client.pools import PoolCalls
from whistlestop.client.stacks import StackCalls
from whistlestop.client.stream import Message, follow
from whistlestop.client.transport import quoted
from whistlestop.client.usage import UsageCalls
from whistlestop.domain.errors import BadRequest, NotFound, ServerUnreachable
from whistlestop.wire import api

if TYPE_CHECKING:  # a command imports those shapes that it asks for
    from whistlestop.wire.advice import AdviceView
    from whistlestop.wire.charts import Charts, SeriesList
    from whistlestop.wire.checkpoints import CheckpointDetail, CheckpointDone, SavingView, StorageView, Verified
    from whistlestop.wire.pages import Consequences
    from whistlestop.wire.timeline import TimelineView

Verb = Literal["stop", "pause", "resume", "kill", "cancel", "delete"]

UPLOAD_TIMEOUT = 600.0
TOPICS = ("run", "events", "logs", "progress", "metrics")
POINTS_AT_ONCE = 200_000  # of metrics in one answer: the server's own limit


class Client(PoolCalls, LossCalls, StackCalls, UsageCalls, AlertCalls):
    """Talks to one server. RUN arguments are an id, `#number`, number or unique name."""

    # --- runs --------------------------------------------------------------------------------------------------

    def submit(
        self,
        spec: str | None = None,
        *,
        workflow: str | None = None,
        sets: Sequence[str] = (),
        bundle: str | None = None,
        in_place: str | None = None,
        env: Mapping[str, str] | None = None,
        commit: str | None = None,
        dirty: bool | None = None,
        note: str = "",
        key: str | None = None,
        force: bool = False,
    ) -> api.RunView:
        body = api.Submit(
            spec=spec,
            workflow=workflow,
            set=list(sets),
            bundle=bundle,
            in_place=in_place,
            env=dict(env or {}),
            commit=commit,
            dirty=dirty,
            note=note,
            key=key or uuid4().hex,
            force=force,
        )
        return self._post_keyed(api.RunView, "/runs", body)

    def check(self, spec: str, sets: Sequence[str] = ()) -> api.CheckedForm:
        return self._post(api.CheckedForm, "/check", api.CheckBody(spec=spec, set=list(sets)))

    def runs(
        self,
        *,
        status: Sequence[str] = (),
        project: str | None = None,
        search: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> api.RunPage:
        query = {"status": list(status), "project": project, "search": search, "sort": sort, "limit": limit}
        return self._get(api.RunPage, "/runs", {**query, "after": after})

    def all_runs(
        self,
        *,
        status: Sequence[str] = (),
        project: str | None = None,
        search: str | None = None,
        sort: str | None = None,
    ) -> Iterator[api.RunView]:
        """Every page, one run after the other."""
        after: str | None = None
        while True:
            page = self.runs(status=status, project=project, search=search, sort=sort, limit=500, after=after)
            yield from page.runs
            after = page.next
            if not after:
                return

    def run(self, run: str) -> api.RunView:
        return self._get(api.RunView, f"/runs/{quoted(run)}")

    def stop(self, run: str, *, phase: str | None = None, note: str = "") -> api.Done:
        return self._verb(run, "stop", api.StopBody(phase=phase, note=note))

    def save(self, run: str, *, phase: str | None = None, note: str = "") -> api.Done:
        return self._verb(run, "save", api.SaveBody(phase=phase, note=note))

    def extend(
        self,
        run: str,
        *,
        steps: int | None = None,
        more: int | None = None,
        phase: str | None = None,
        note: str = "",
        key: str | None = None,
    ) -> api.Done:
        """`steps` in all, or `more` than now. `key`: a repeated call with the same one is the same request."""
        body = api.ExtendBody(steps=steps, more=more, phase=phase, note=note, key=key or uuid4().hex)
        try:
            return self._post_keyed(api.Done, f"/runs/{quoted(run)}/extend", body)
        except ServerUnreachable as unreachable:
            if more is not None and "no server" not in unreachable.text:  # another call would be another request
                unreachable.hint = f"it may have been taken; look before you ask again: whistle show {run}"
            raise

    def set_params(
        self,
        run: str,
        params: Mapping[str, bool | int | float | str],
        *,
        phase: str | None = None,
        note: str = "",
        key: str | None = None,
    ) -> api.Done:
        if (text := api.params_problem(params)) is not None:
            raise BadRequest(text)
        body = api.ParamsBody(params=dict(params), phase=phase, note=note, key=key or uuid4().hex)
        return self._post_keyed(api.Done, f"/runs/{quoted(run)}/params", body)

    def pause(self, run: str, *, checkpoint: Literal["save", "latest"] = "save", note: str = "") -> api.Done:
        return self._verb(run, "pause", api.PauseBody(checkpoint=checkpoint, note=note))

    def resume(self, run: str, *, from_start: bool = False, note: str = "") -> api.Done:
        return self._verb(run, "resume", api.ResumeBody(from_start=from_start, note=note))

    def kill(self, run: str, *, grace_s: float | None = None, note: str = "") -> api.Done:
        return self._verb(run, "kill", api.KillBody(grace_s=grace_s, note=note))

    def cancel(self, run: str, *, grace_s: float | None = None, note: str = "") -> api.Done:
        return self._verb(run, "cancel", api.KillBody(grace_s=grace_s, note=note))

    def rerun(
        self, run: str, *, sets: Sequence[str] = (), note: str = "", key: str | None = None, force: bool = False
    ) -> api.RunView:
        body = api.RerunBody(set=list(sets), note=note, key=key or uuid4().hex, force=force)
        return self._post_keyed(api.RunView, f"/runs/{quoted(run)}/rerun", body)

    def continue_run(
        self,
        run: str,
        *,
        step: int | None = None,
        phase: str | None = None,
        sets: Sequence[str] = (),
        note: str = "",
        key: str | None = None,
        force: bool = False,
    ) -> api.RunView:
        body = api.ContinueBody(step=step, phase=phase, set=list(sets), note=note, key=key or uuid4().hex, force=force)
        return self._post_keyed(api.RunView, f"/runs/{quoted(run)}/continue", body)

    def note(self, run: str, note: str) -> api.RunView:
        return self._send(api.RunView, "PATCH", f"/runs/{quoted(run)}", api.NoteBody(note=note))

    def delete(self, run: str) -> api.Done:
        return self._send(api.Done, "DELETE", f"/runs/{quoted(run)}", None)

    def bulk(
        self,
        verb: Verb,
        *,
        runs: Sequence[str] = (),
        status: Sequence[api.RunStatus] = (),
        project: str | None = None,
        search: str | None = None,
        everything: bool = False,
        note: str = "",
    ) -> api.BulkDone:
        body = api.BulkBody(
            verb=verb,
            runs=list(runs),
            status=list(status),
            project=project,
            search=search,
            everything=everything,
            note=note,
        )
        return self._post(api.BulkDone, "/bulk", body)

    # --- what a run says ---------------------------------------------------------------------------------------

    def events(
        self,
        run: str,
        *,
        after: int = 0,
        limit: int | None = None,
        scope: str | None = None,
        before: int | None = None,
        newest: bool = False,
        search: str | None = None,
    ) -> list[api.EventView]:
        """In their order. `newest`: the last `limit` of them; `before`: the last ones before this seq."""
        query = {"after": after, "limit": limit, "scope": scope, "before": before, "search": search}
        return self._list(api.EventView, f"/runs/{quoted(run)}/events", {**query, "newest": newest or None})

    def logs(
        self,
        run: str,
        *,
        phase: str | None = None,
        attempt: int | None = None,
        grep: str | None = None,
        level: str | None = None,
        tail: int | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> api.LogPage:
        query = {"phase": phase, "attempt": attempt, "grep": grep, "level": level, "tail": tail}
        return self._get(api.LogPage, f"/runs/{quoted(run)}/logs", {**query, "after": after, "limit": limit})

    def metrics(
        self, run: str, names: Sequence[str] = (), *, phase: str | None = None, after: str | None = None
    ) -> api.MetricsView:
        """Every point. A long run comes in several answers, which are joined here: `charts` is quicker to look at."""
        query: dict[str, Any] = {"name": list(names), "phase": phase, "after": after, "limit": POINTS_AT_ONCE}
        pages = [self._get(api.MetricsView, f"/runs/{quoted(run)}/metrics", query)]
        while pages[-1].more:
            query["after"] = pages[-1].cursor
            pages.append(self._get(api.MetricsView, f"/runs/{quoted(run)}/metrics", query))
        return joined(pages)

    def series(self, run: str) -> "SeriesList":
        """What a run has logged: names and last values, without the points."""
        from whistlestop.wire.charts import SeriesList

        return self._get(SeriesList, f"/runs/{quoted(run)}/series")

    def charts(
        self,
        run: str,
        names: Sequence[str] = (),
        *,
        phase: str | None = None,
        axis: Literal["step", "time"] = "step",
        start: float | None = None,
        end: float | None = None,
        width: int = 600,
    ) -> "Charts":
        """Lines of any length in at most `width` buckets each, with the lowest and highest value of every bucket."""
        from whistlestop.wire.charts import Charts

        query = {"name": list(names), "phase": phase, "axis": axis, "from": start, "to": end, "width": width}
        return self._get(Charts, f"/runs/{quoted(run)}/charts", query)

    def timeline(self, run: str) -> "TimelineView":
        """Evaluations, ends of epochs and the stages of every start, phase by phase."""
        from whistlestop.wire.timeline import TimelineView

        return self._get(TimelineView, f"/runs/{quoted(run)}/timeline")

    def advice(self, run: str, *, phase: str | None = None) -> "AdviceView":
        """Kill, stop, wait, or fix and continue: why, and what each choice costs. Changes nothing."""
        from whistlestop.wire.advice import AdviceView

        return self._get(AdviceView, f"/runs/{quoted(run)}/advice", {"phase": phase})

    def consequences(
        self, run: str, verb: Literal["stop", "pause", "kill", "cancel", "delete"], *, phase: str | None = None
    ) -> "Consequences":
        """What a verb would keep, lose, free and cost, now. Changes nothing."""
        from whistlestop.wire.pages import Consequences

        return self._get(Consequences, f"/runs/{quoted(run)}/consequences", {"verb": verb, "phase": phase})

    def checkpoints(self, run: str, *, trashed: bool = False) -> list[api.CheckpointView]:
        """Newest first. `trashed`: with those that were removed and can be had back."""
        return self._list(api.CheckpointView, f"/runs/{quoted(run)}/checkpoints", {"trashed": trashed or None})

    def checkpoint(self, run: str, checkpoint: str) -> "CheckpointDetail":
        """With its files, their sizes and hashes."""
        from whistlestop.wire.checkpoints import CheckpointDetail

        return self._get(CheckpointDetail, self._checkpoint(run, checkpoint))

    def checkpoint_file(self, run: str, checkpoint: str, name: str) -> Iterator[bytes]:
        """Its bytes as they come; nobody has compared them yet: see client.checkpoints.download."""
        return self._transport.pieces(f"{self._checkpoint(run, checkpoint)}/files/{quote(name)}")

    def saving(self, run: str) -> list["SavingView"]:
        """When each phase that trains saves next, and saves that failed."""
        from whistlestop.wire.checkpoints import SavingView

        return self._list(SavingView, f"/runs/{quoted(run)}/saving")

    def verify_checkpoint(
        self, run: str, checkpoint: str, *, told: Callable[["Verified"], None] = lambda said: None
    ) -> "Verified":
        """The server reads everything back. `told` is called while it lasts."""
        from whistlestop.wire.checkpoints import Verified

        path = f"{self._checkpoint(run, checkpoint)}/verify"
        said = self._send(Verified, "POST", path, None)
        while said.reading:
            told(said)
            try:
                said = self._get(Verified, path)
            except NotFound:  # the server was started again, and has forgotten it
                said = self._send(Verified, "POST", path, None)
        return said

    def pin_checkpoint(self, run: str, checkpoint: str, *, pinned: bool = True) -> "CheckpointDone":
        """A pinned one is removed by nobody but a person."""
        return self._checkpoint_done("POST", f"{self._checkpoint(run, checkpoint)}/{'pin' if pinned else 'unpin'}")

    def remove_checkpoint(self, run: str, checkpoint: str, *, force: bool = False) -> "CheckpointDone":
        """It can be had back for a day. `force`: also the newest, the best and a pinned one; never one in use."""
        return self._checkpoint_done("DELETE", self._checkpoint(run, checkpoint) + ("?force=true" if force else ""))

    def restore_checkpoint(self, run: str, checkpoint: str) -> "CheckpointDone":
        """Bring one back that was removed; it is pinned then."""
        return self._checkpoint_done("POST", f"{self._checkpoint(run, checkpoint)}/restore")

    def probe_storage(self) -> "StorageView":
        """Where new runs keep their checkpoints: written, read and removed again."""
        from whistlestop.wire.checkpoints import StorageView

        return self._send(StorageView, "POST", "/storage/probe", None)

    def stream(
        self,
        run: str,
        topics: Sequence[str] = TOPICS,
        *,
        last_id: str | None = None,
        give_up_after: float = 300.0,
        stopped: Callable[[], bool] = lambda: False,
        on_state: Callable[[bool], None] = lambda stands: None,
    ) -> Iterator[Message]:
        """Everything live about one run until it has ended, or until `stopped`; server restarts are survived."""
        return follow(
            self._transport,
            f"/runs/{quoted(run)}/stream",
            query={"topics": ",".join(topics)},
            last_id=last_id,
            give_up_after=give_up_after,
            stopped=stopped,
            on_state=on_state,
        )

    def stream_all(self, *, last_id: str | None = None, give_up_after: float = 300.0) -> Iterator[Message]:
        """Every run that changes."""
        return follow(self._transport, "/stream", last_id=last_id, give_up_after=give_up_after)

    def stream_rows(
        self,
        *,
        last_id: str | None = None,
        give_up_after: float = 300.0,
        stopped: Callable[[], bool] = lambda: False,
        on_state: Callable[[bool], None] = lambda stands: None,
    ) -> Iterator[Message]:
        """For lists: `run` (it changed), `gone` (it was deleted) and `progress`. `last_id` is the cursor of a page."""
        return follow(
            self._transport,
            "/rows/stream",
            last_id=last_id,
            give_up_after=give_up_after,
            stopped=stopped,
            on_state=on_state,
        )

    # --- bundles, workflows ------------------------------------------------------------------------------------

    def has_bundle(self, digest: str) -> bool:
        try:
            self._transport.request("HEAD", f"/bundles/{quoted(digest)}")
        except NotFound:
            return False
        return True

    def upload_bundle(self, digest: str, path: Path) -> api.BundleView:
        with path.open("rb") as tar:
            response = self._transport.request(
                "PUT", f"/bundles/{quoted(digest)}", body=tar, json=False, timeout=UPLOAD_TIMEOUT
            )
        return self._read(api.BundleView, response.content)

    def save_workflow(self, name: str, spec: str, *, note: str = "") -> api.WorkflowView:
        body = api.WorkflowBody(spec=spec, note=note)
        return self._send(api.WorkflowView, "PUT", f"/workflows/{quoted(name)}", body)

    def workflows(self) -> list[api.WorkflowView]:
        return self._list(api.WorkflowView, "/workflows")

    def workflow(self, name: str, version: int | None = None) -> api.WorkflowView:
        return self._get(api.WorkflowView, f"/workflows/{quoted(name)}", {"version": version})

    def workflow_versions(self, name: str) -> list[api.WorkflowView]:
        return self._list(api.WorkflowView, f"/workflows/{quoted(name)}/versions")

    # --- the server itself -------------------------------------------------------------------------------------

    def whoami(self) -> api.WhoView:
        return self._get(api.WhoView, "/whoami")

    def sign_in_link(self) -> str:
        """The whole address of a page that signs a browser in as this client, once, within 10 minutes."""
        return self.url + self._send(api.LinkView, "POST", "/links", None).link

    def queue(self) -> list[api.RunView]:
        return self._list(api.RunView, "/queue")

    def tokens(self) -> list[api.TokenView]:
        return self._list(api.TokenView, "/tokens")

    def create_token(self, name: str, role: api.Role = "member") -> api.TokenView:
        return self._post(api.TokenView, "/tokens", api.TokenBody(name=name, role=role))

    def revoke_token(self, token_id: str) -> None:
        self._transport.request("DELETE", f"/tokens/{quoted(token_id)}")

    def secrets(self) -> list[api.SecretView]:
        return self._list(api.SecretView, "/secrets")

    def set_secret(self, name: str, value: str) -> None:
        body = api.SecretBody(value=value)
        self._transport.request("PUT", f"/secrets/{quoted(name)}", body=body.model_dump_json())

    def delete_secret(self, name: str) -> None:
        self._transport.request("DELETE", f"/secrets/{quoted(name)}")

    # --- how -----------------------------------------------------------------------------------------------------

    def _checkpoint(self, run: str, checkpoint: str) -> str:
        return f"/runs/{quoted(run)}/checkpoints/{quoted(checkpoint)}"

    def _checkpoint_done(self, method: str, path: str) -> "CheckpointDone":
        from whistlestop.wire.checkpoints import CheckpointDone

        return self._send(CheckpointDone, method, path, None)

    def _verb(self, run: str, verb: str, body: BaseModel) -> api.Done:
        return self._post(api.Done, f"/runs/{quoted(run)}/{verb}", body)
