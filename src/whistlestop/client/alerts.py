"""Alerts by the client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whistlestop.client.calls import Calls
from whistlestop.client.transport import quoted

if TYPE_CHECKING:  # a command imports those shapes that it asks for
    from whistlestop.wire.alerts import DeliveryState, DeliveryView, ReceiverView


class AlertCalls(Calls):
    def receivers(self) -> list["ReceiverView"]:
        from whistlestop.wire.alerts import ReceiverView

        return self._list(ReceiverView, "/alerts/receivers")

    def add_receiver(
        self,
        name: str,
        address: str,
        *,
        project: str | None = None,
        only_named: bool = False,
        on: Sequence[str] | None = None,
    ) -> "ReceiverView":
        """The answer has the secret that webhooks are signed with: it is told this once."""
        from whistlestop.wire.alerts import ReceiverBody, ReceiverView

        kinds = {} if on is None else {"on": list(on)}
        body = ReceiverBody(name=name, address=address, project=project, only_named=only_named, **kinds)
        return self._post(ReceiverView, "/alerts/receivers", body)

    def remove_receiver(self, name: str) -> None:
        self._transport.request("DELETE", f"/alerts/receivers/{quoted(name)}")

    def test_receiver(self, name: str) -> "DeliveryView":
        from whistlestop.wire.alerts import DeliveryView

        return self._send(DeliveryView, "POST", f"/alerts/receivers/{quoted(name)}/test", None)

    def deliveries(
        self,
        *,
        receiver: str | None = None,
        run: str | None = None,
        state: "DeliveryState | None" = None,
        delivery: str | None = None,
        limit: int = 100,
    ) -> list["DeliveryView"]:
        """The newest first."""
        from whistlestop.wire.alerts import DeliveryView

        query = {"receiver": receiver, "run": run, "state": state, "delivery": delivery, "limit": limit}
        return self._list(DeliveryView, "/alerts/deliveries", query)
