"""ClusterStore on etcd."""

from __future__ import annotations

from persys_adapters.etcd.client import EtcdClient
from persys_adapters.etcd.kv import EtcdKv
from persys_adapters.kv.cluster_store import KvClusterStore, UnreadableCallback, ignore
from persys_core.model.ids import StoreRevision
from persys_core.ports.cluster_store import Guarantee

__all__ = ["EtcdClusterStore"]


class EtcdClusterStore(KvClusterStore):
    """Records in etcd, where several replicas may share them; ``client`` is the caller's to close.

    ``prefix`` stands before every key; a cluster of its own inside a larger etcd.
    """

    def __init__(
        self,
        client: EtcdClient,
        *,
        prefix: str = "",
        on_unreadable: UnreadableCallback = ignore,
    ) -> None:
        kv = EtcdKv(client, prefix.encode())
        promised = Guarantee.CAS | Guarantee.WATCH | Guarantee.LEASE
        super().__init__(kv, promised | Guarantee.DURABLE | Guarantee.SHARED, on_unreadable)
        self._etcd = kv

    @property
    def backend_id(self) -> str:
        """The id of the etcd cluster, as etcdctl shows it; empty before its first answer."""
        return f"{self._etcd.cluster_id:x}" if self._etcd.cluster_id else ""

    async def compact(self, before: StoreRevision) -> None:
        """Forget the history before that revision, in the whole of this etcd."""
        await self._etcd.compact(before)
