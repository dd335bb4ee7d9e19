"""Which of a user's constraints contradict what is requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hatch_torch_ext.remote import pipconfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "requirement", "contradicts"),
    [
        ("torch==2.8.0", "torch==2.9.*", True),
        ("torch==2.9.1", "torch==2.9.*", False),
        ("torch==2.9.0a0+git123.nv", "torch==2.9.*", False),
        ("torch==2.9.0a0+git123.nv", "torch==2.13.*", True),
        ("torch<=2.14.1", "torch==2.9.*", False),
        ("torch<2.9", "torch==2.9.*", True),
        ("torch>=2.10", "torch==2.9.*", True),
        ("torch>=2.10", "torch>=2.4", False),
        ("Torch == 2.8.0 ; python_version > '3'", "torch==2.9.*", True),
        ("torch @ https://example.org/torch.whl", "torch==2.9.*", False),
        ("numpy==1.26", "torch==2.9.*", False),
        ("numpy==1.26", "numpy>=2", True),
        ("not a requirement", "torch==2.9.*", False),
    ],
)
def test_lines_that_contradict(line: str, requirement: str, contradicts: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The message names a line that no version can satisfy, not one that only narrows the choice."""
    file = tmp_path / "constraints.txt"
    file.write_text(f"# ours\n--hash=x\n{line}  # theirs\n\n", encoding="utf-8")
    environ = {"PIP_CONFIG_FILE": "/dev/null"}
    message = pipconfig.contradiction({**environ, "UV_CONSTRAINT": f"/nope {file}"}, [requirement], pip=False)
    assert message == (
        f"It is held back by constraints: `UV_CONSTRAINT` ({file}) has the line `{line}`. Run `unset UV_CONSTRAINT` "
        "before the build, or correct the matrix."
        if contradicts
        else None
    )
    assert (pipconfig.contradiction({**environ, "PIP_CONSTRAINT": str(file)}, [requirement]) is None) != contradicts
    assert pipconfig.contradiction({**environ, "PIP_CONSTRAINT": str(file)}, [requirement], pip=False) is None


def test_pips_own_files_may_name_constraints(tmp_path: Path) -> None:
    """`constraint` in pip.conf counts; the variable overrides it."""
    file, conf = tmp_path / "constraints.txt", tmp_path / "pip.conf"
    file.write_text("torch==2.8\n", encoding="utf-8")
    conf.write_text(f"[global]\nconstraint = {file}\n", encoding="utf-8")
    environ = {"PIP_CONFIG_FILE": str(conf), "XDG_CONFIG_DIRS": str(tmp_path)}
    message = pipconfig.contradiction(environ, ["torch==2.9.*"])
    assert message is not None
    assert f"`constraint` in {conf} ({file}) has the line `torch==2.8`" in message
    assert pipconfig.contradiction({**environ, "PIP_CONSTRAINT": "/dev/null"}, ["torch==2.9.*"]) is None
