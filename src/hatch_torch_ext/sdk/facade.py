"""The small importable ``torch`` of a thin SDK: real modules of ours beside the wheel's own ``version.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hatch_torch_ext.sdk.facts import TorchFacts

SOURCE = Path(__file__).parent.parent / "resources" / "facade" / "torch"
WHEELS_OWN = "version.py"


def write(prefix: Path, found: TorchFacts) -> None:
    """Write the facade into the folder ``prefix`` of a torch whose facts are ``found``."""
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE)
        text = file.read_text(encoding="utf-8")
        if name.as_posix() == WHEELS_OWN:
            continue
        if name.as_posix() == "_facts.py":
            head, _, _ = text.partition("FACTS = ")
            text = f"{head}FACTS = {{'cxx11_abi': {found.cxx11_abi!r}}}\n"
        target = prefix / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
