"""The small importable ``torch`` of a thin SDK: modules of this project beside the wheel's own ``version.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hatch_torch_ext.sdk.facts import TorchFacts

SOURCE = Path(__file__).parent.parent / "resources" / "facade" / "torch"
LITERAL = "FACTS: Dict[str, bool] = "
WHEELS_OWN = "version.py"


def files(found: TorchFacts) -> Iterator[tuple[str, bytes]]:
    """Yield the facade's files for a torch with the facts ``found``: POSIX path below ``torch``, and content."""
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE)
        text = file.read_text(encoding="utf-8")
        if name.as_posix() == WHEELS_OWN:
            continue
        if name.as_posix() == "_facts.py":
            head, name_and_type, _ = text.partition(LITERAL)
            text = f'{head}{name_and_type}{{"cxx11_abi": {found.cxx11_abi!r}}}\n'
        yield name.as_posix(), text.encode()
