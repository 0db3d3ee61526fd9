"""What was spent, and budgets, by the client."""

from typing import TYPE_CHECKING

from whistlestop.client.calls import Calls
from whistlestop.client.transport import quoted

if TYPE_CHECKING:  # a command imports those shapes that it asks for
    from whistlestop.wire.usage import BudgetView, By, UsageView


class UsageCalls(Calls):
    def usage(
        self,
        by: "By" = "project",
        *,
        project: str | None = None,
        since: str = "30d",
        until: str | None = None,
        limit: int = 100,
    ) -> "UsageView":
        """Times as people write them: 7d (ago), 2026-01-31, or all."""
        from whistlestop.wire.usage import UsageView

        query = {"by": by, "project": project, "since": since, "until": until, "limit": limit}
        return self._get(UsageView, "/usage", query)

    def budgets(self) -> list["BudgetView"]:
        from whistlestop.wire.usage import BudgetView

        return self._list(BudgetView, "/budgets")

    def set_budget(self, project: str, credits: float, *, restart: bool = False) -> "BudgetView":
        """What the project may spend in all; `restart`: from now on."""
        from whistlestop.wire.usage import BudgetBody, BudgetView

        body = BudgetBody(credits=credits, restart=restart)
        return self._send(BudgetView, "PUT", f"/budgets/{quoted(project)}", body)

    def remove_budget(self, project: str) -> None:
        self._transport.request("DELETE", f"/budgets/{quoted(project)}")
