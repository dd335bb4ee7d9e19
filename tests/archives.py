"""Archives that the tests unpack."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an sdist; Python knows filters since 3.11.4."""
    archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]  # noqa: S202
