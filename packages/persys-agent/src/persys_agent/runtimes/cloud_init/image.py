"""A seed as an ISO 9660 image with the label ``cidata``, which cloud-init's NoCloud looks for.

Decided here: names on the image (Joliet and Rock Ridge carry the real ones), its mode (0600, since
it may hold secrets) and that it appears whole or not at all. The library is pycdlib, so neither
mkisofs nor genisoimage has to be there. Writing takes some milliseconds and happens in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from attrs import frozen
from pycdlib import PyCdlib

from persys_agent.runtimes.cloud_init.seed import Seed

__all__ = ["SeedImage", "write_seed"]

_LABEL = "cidata"
_ISO_NAMES = {
    "user-data": "/USERDATA.;1",
    "meta-data": "/METADATA.;1",
    "network-config": "/NETCONF.;1",
    "vendor-data": "/VENDOR.;1",
}
_FILE_MODE = 0o100444


@frozen
class SeedImage:
    """A written image; ``metadata`` is what the agent reports of it."""

    path: Path
    checksum: str
    size_bytes: int
    prepared_at: datetime

    def metadata(self) -> dict[str, str]:
        """The keys of the reference agent; the checksum is SHA-256 in hex digits."""
        return {
            "vm.cloud_init_seed_path": str(self.path),
            "vm.cloud_init_seed_checksum": self.checksum,
            "vm.cloud_init_seed_size_bytes": str(self.size_bytes),
            "vm.cloud_init_seed_prepared_at": self.prepared_at.isoformat(),
        }


async def write_seed(seed: Seed, path: Path) -> SeedImage:
    """Write the image to ``path``, over one that is there. Raises ``OSError``."""
    return await asyncio.to_thread(_write, seed, path)


def _write(seed: Seed, path: Path) -> SeedImage:
    content = _image(seed)
    part = path.with_name(path.name + ".part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
        part.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise
    checksum = hashlib.sha256(content).hexdigest()
    return SeedImage(path, checksum, len(content), datetime.now(UTC))


def _image(seed: Seed) -> bytes:
    iso = PyCdlib()
    iso.new(interchange_level=1, vol_ident=_LABEL, joliet=3, rock_ridge="1.09")
    try:
        for name, content in seed.files().items():
            iso.add_fp(
                BytesIO(content),
                len(content),
                _ISO_NAMES[name],
                rr_name=name,
                joliet_path=f"/{name}",
                file_mode=_FILE_MODE,
            )
        image = BytesIO()
        iso.write_fp(image)
        return image.getvalue()
    finally:
        iso.close()
