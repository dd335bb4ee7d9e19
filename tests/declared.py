"""Writes the files that are generated from the declared options: tables of docs/configuration.md and the JSON Schema.

Run `hatch run declared` after an option was added or changed; a test fails as long as the files differ.
"""

from __future__ import annotations

from pathlib import Path

import hatch_torch_ext
from hatch_torch_ext.config import published
from hatch_torch_ext.config.declaration import SECTIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
SCHEMA = Path(hatch_torch_ext.__file__).parent / "resources" / published.SCHEMA
VARIABLES = "Environment variables"


def page(text: str) -> str:
    """Return the page with the first table under each heading of options as it is declared."""
    for section in (*SECTIONS, VARIABLES):
        before, heading, rest = text.partition(f"\n## {section}\n\n")
        table = published.variables() if section == VARIABLES else published.table(section)
        written, _, after = rest.partition("\n\n")
        assert written.startswith("| "), f"`## {section}` of {PAGE} does not begin with a table"
        text = f"{before}{heading}{table}\n\n{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(published.schema_text(), encoding="utf-8")
