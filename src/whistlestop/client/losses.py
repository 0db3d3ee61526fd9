"""Losses on purpose by the client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from whistlestop.client.calls import Calls
from whistlestop.client.transport import quoted

if TYPE_CHECKING:  # a command imports those shapes that it asks for
    from whistlestop.wire.api import BulkDone, Done
    from whistlestop.wire.rehearsal import Rehearsal

Fault = Literal["program", "host", "link", "storage", "save"]


class LossCalls(Calls):
    def preempt(self, run: str, *, notice_s: float = 30.0, attempts: Sequence[int] = (), note: str = "") -> "Done":
        """As if its pool took it back. `attempts`: only these; then asking twice never hits the next one."""
        from whistlestop.wire.api import Done
        from whistlestop.wire.rehearsal import PreemptBody

        body = PreemptBody(notice_s=notice_s, attempts=list(attempts), note=note)
        return self._post(Done, f"/runs/{quoted(run)}/preempt", body)

    def preempt_host(self, pool: str, host: str, *, notice_s: float = 30.0, note: str = "") -> "BulkDone":
        """All that runs there."""
        from whistlestop.wire.api import BulkDone
        from whistlestop.wire.rehearsal import PreemptBody

        body = PreemptBody(notice_s=notice_s, note=note)
        return self._post(BulkDone, f"/hosts/{quoted(pool)}/{quoted(host)}/preempt", body)

    def rehearse(
        self, run: str, fault: Fault, *, seconds: float = 5.0, phase: str | None = None, attempt: int | None = None
    ) -> "Rehearsal":
        """Something goes wrong with it, on purpose. `seconds`: how long it lasts, where it does not end the attempt."""
        from whistlestop.wire.rehearsal import Rehearsal, RehearseBody

        body = RehearseBody(fault=fault, seconds=seconds, phase=phase, attempt=attempt)
        return self._post(Rehearsal, f"/runs/{quoted(run)}/rehearse", body)
