"""Pools and hosts by the client."""

from typing import TYPE_CHECKING, Any

from whistlestop.client.calls import Calls
from whistlestop.client.transport import quoted

if TYPE_CHECKING:  # a command imports those shapes that it asks for
    from whistlestop.wire.pools import Applied, ClusterView, HostDone, HostView, PoolView


class PoolCalls(Calls):
    def pools(self) -> list["PoolView"]:
        from whistlestop.wire.pools import PoolView

        return self._list(PoolView, "/pools")

    def pool(self, name: str) -> "PoolView":
        from whistlestop.wire.pools import PoolView

        return self._get(PoolView, f"/pools/{quoted(name)}")

    def add_pool(self, name: str, **values: Any) -> "PoolView":
        """Values as in a file of pools; the class of its machines is `kind` here."""
        from whistlestop.wire.pools import NewPool, PoolView

        return self._post(PoolView, "/pools", NewPool(name=name, **values))

    def set_pool(self, name: str, **values: Any) -> "PoolView":
        """What is not given stays as it is."""
        from whistlestop.wire.pools import PoolBody, PoolView

        return self._send(PoolView, "PATCH", f"/pools/{quoted(name)}", PoolBody(**values))

    def remove_pool(self, name: str) -> None:
        self._transport.request("DELETE", f"/pools/{quoted(name)}")

    def apply_pools(self, text: str, *, prune: bool = False, dry_run: bool = False) -> "Applied":
        """The text of a file of pools: all of it or nothing."""
        from whistlestop.wire.pools import Applied, ApplyBody

        return self._post(Applied, "/pools/apply", ApplyBody(spec=text, prune=prune, dry_run=dry_run))

    def clusters(self) -> list["ClusterView"]:
        """Of each pool that is on a cluster: whether that can be reached, and what can be used of it now."""
        from whistlestop.wire.pools import ClusterView

        return self._list(ClusterView, "/clusters")

    def hosts(self) -> list["HostView"]:
        from whistlestop.wire.pools import HostView

        return self._list(HostView, "/hosts")

    def exclude_host(self, pool: str, host: str, *, for_s: float | None = None, note: str = "") -> "HostDone":
        """Nothing is placed there until then, or until it is readmitted. What runs there runs on."""
        from whistlestop.wire.pools import ExcludeBody, HostDone

        return self._post(
            HostDone, f"/hosts/{quoted(pool)}/{quoted(host)}/exclude", ExcludeBody(for_s=for_s, note=note)
        )

    def readmit_host(self, pool: str, host: str, *, note: str = "") -> "HostDone":
        """What it did before counts no more."""
        from whistlestop.wire.pools import HostDone, ReadmitBody

        return self._post(HostDone, f"/hosts/{quoted(pool)}/{quoted(host)}/readmit", ReadmitBody(note=note))
