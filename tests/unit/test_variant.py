"""A variant survives JSON, and what is not a variant is refused by the name of the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hatch_torch_ext.base.errors import WheelError
from hatch_torch_ext.facts.variant import BuildRecord, Variant, VariantFile, from_json, to_json

VARIANT = Variant(
    label="torch2.8_cu12.8_cxx11_x86_64",
    torch="2.8",
    stable_abi=False,
    backend="cuda",
    cuda="12.8",
    cxx11_abi=True,
    python=None,
    machine="x86_64",
    libc="glibc",
    libc_floor="2.17",
    policy="manylinux_2_17_x86_64",
    archs=("8.0", "9.0+PTX"),
    files=(
        VariantFile(
            path="torch2.8_cu12.8_cxx11_x86_64/libops.so",
            kind="library",
            sha256="ab" * 32,
            size=12,
            soname="libops.so",
            needed=("libc10.so",),
            registers=True,
            versions=("GLIBC_2.17",),
        ),
    ),
    build=BuildRecord(
        entry="matrix.2.8",
        variables=(("torch", "2.8"),),
        torch_version="2.8.0+cu128",
        python="3.11.7",
        sdk="thin",
        compiler="GNU 12.2.0",
        cmake="3.31.0",
        flags=(("CXX", "-O3"),),
    ),
)


def test_round_trip_through_text() -> None:
    """Written as JSON text and read back, the variant is equal, tuples and all."""
    assert from_json(json.loads(json.dumps(to_json(VARIANT)))) == VARIANT


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the variant's JSON with the field at ``path`` set to ``value``, or taken out where it is None."""
    data: dict[str, Any] = json.loads(json.dumps(to_json(VARIANT)))
    *outer, last = path.split(".")
    at: Any = data
    for part in outer:
        at = at[int(part)] if part.isdigit() else at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "variant must be an object, not list"),
        (changed("label", None), "variant lacks the field `label`"),
        (changed("news", 1), "variant has the field `news`, which this hatch-torch-ext does not know"),
        (changed("backend", "rocm"), "variant.backend cannot be 'rocm'"),
        (changed("stable_abi", 1), "variant.stable_abi cannot be 1"),
        (changed("archs", ["8.0", 9]), "variant.archs[1] cannot be 9"),
        (changed("files.0.size", "12"), "variant.files[0].size cannot be '12'"),
        (changed("files.0.kind", []), "variant.files[0].kind cannot be []"),
        (
            changed("build.variables", [["torch"]]),
            "variant.build.variables[0] cannot be ['torch']",
        ),
        (changed("build", "x"), "variant.build must be an object, not str"),
    ],
)
def test_what_is_wrong_is_named(data: object, message: str) -> None:
    """The message names the field that is wrong, down to the number in a list."""
    with pytest.raises(WheelError) as caught:
        from_json(data)
    assert str(caught.value) == message


def test_fields_with_defaults_may_be_absent() -> None:
    """Manifests of older releases lack newer fields: their defaults stand in."""
    assert from_json(changed("files.0.registers", None)).files[0].registers is False
