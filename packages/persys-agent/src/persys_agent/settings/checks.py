"""What settings demand of each other. Each check is one small function; all of them are run.

Not decided here: what a single setting may hold (``parse``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from persys_agent.settings.parse import VaultMethod
from persys_agent.settings.table import NodeSettings

__all__ = ["conflicts"]


def conflicts(settings: NodeSettings) -> list[str]:
    """Every pair of settings that cannot both hold, one line each."""
    return [problem for check in _CHECKS for problem in check(settings)]


def _ports(settings: NodeSettings) -> Iterator[str]:
    if settings.grpc_port == settings.metrics_port != 0:
        yield f"metrics_port: {settings.metrics_port} is also grpc_port; give each its own"


def _tls_files(settings: NodeSettings) -> Iterator[str]:
    """The defaults are paths, so empty ones are not to be had; a folder is the usual slip."""
    for key in ("tls_cert_path", "tls_key_path", "tls_ca_path"):
        if settings.tls_enabled and getattr(settings, key).endswith("/"):
            yield f"{key}: names a folder; give the file in it"


def _vault(settings: NodeSettings) -> Iterator[str]:
    if not settings.vault_enabled:
        return
    if not settings.tls_enabled:
        yield "vault_enabled: needs tls_enabled; set it to true, or vault_enabled to false"
    match settings.vault_auth_method:
        case VaultMethod.TOKEN if not settings.vault_token:
            yield "vault_token: needed with vault_auth_method token"
        case VaultMethod.APPROLE if not (
            settings.vault_approle_role_id and settings.vault_approle_secret_id
        ):
            yield (
                "vault_approle_role_id: needed with vault_auth_method approle, together with"
                " vault_approle_secret_id"
            )
        case VaultMethod.TOKEN | VaultMethod.APPROLE:
            return


def _runtimes(settings: NodeSettings) -> Iterator[str]:
    enabled = (
        settings.docker_enabled,
        settings.compose_enabled,
        settings.vm_enabled,
        settings.firecracker_enabled,
    )
    if not any(enabled):
        yield (
            "docker_enabled: no runtime is enabled; set docker_enabled, compose_enabled,"
            " vm_enabled or firecracker_enabled to true"
        )


def _nfs(settings: NodeSettings) -> Iterator[str]:
    if bool(settings.storage_nfs_server) != bool(settings.storage_nfs_export):
        yield "storage_nfs_server: needs storage_nfs_export and the other way round; set both"
    if settings.storage_nfs_export and not settings.storage_nfs_export.startswith("/"):
        yield f"storage_nfs_export: {settings.storage_nfs_export!r} has to begin with /"


_FOLDERS = (
    "agent_data_dir",
    "compose_root",
    "vm_images_root",
    "firecracker_root",
    "storage_local_root",
    "storage_nfs_stage_dir",
    "storage_ceph_stage_dir",
    "state_store_path",
)


def _absolute(settings: NodeSettings) -> Iterator[str]:
    """Runtimes are told these paths, and do not run where the agent does.

    What follows ``agent_data_dir`` is not told again.
    """
    data = settings.agent_data_dir
    for key in _FOLDERS:
        path = getattr(settings, key)
        follows = key != "agent_data_dir" and path.startswith(f"{data}/")
        if not path.startswith("/") and not follows:
            yield f"{key}: {path!r} is not absolute; begin it with /"


_CHECKS: tuple[Callable[[NodeSettings], Iterator[str]], ...] = (
    _ports,
    _tls_files,
    _vault,
    _runtimes,
    _nfs,
    _absolute,
)
