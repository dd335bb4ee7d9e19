"""What a kernel of Hugging Face's Hub asks of a wheel: what keeps one from being made, each with the lines to change.

``kernels`` makes the repository of a wheel that has no such problem.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext.base import escape
from hatch_torch_ext.facts import policy, registered, releases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hatch_torch_ext.facts.variant import BuiltVariant, Variant, VariantFile
    from hatch_torch_ext.outlets.parts import Part

OPS = "_ops.py"
"""The module of a package that names its operators' namespace, on a line as ``NAMESPACE``."""
NAMESPACE = re.compile(r'^NAMESPACE = "(\w+)"', re.MULTILINE)
NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
"""What the Hub takes as a kernel's name."""
POLICY = "manylinux_2_28"
OLDEST_PYTHON = 9
"""The minor of the oldest Python 3 that a kernel serves."""
_REQUIREMENTS = {"einops": "einops", "helion": "helion", "apache-tvm-ffi": "tvm-ffi"}
"""Distributions that a kernel may require, as its metadata name them; `kernels` refuses other names."""


def problems(
    part: Part, name: str, spaces: Mapping[str, frozenset[str]], *, name_given: bool, keep_namespace: bool
) -> Iterator[str]:
    """Yield why no kernel ``name`` can be made of the wheel ``part``.

    ``spaces`` are sha256 of a library -> the namespaces in its fields; ``name_given`` says that the user gave the name.
    """
    yield from _about_the_wheel(part, name, name_given=name_given)
    yield from _about_variants(part)
    yield from _about_python(part, spaces, keep_namespace=keep_namespace)
    if not keep_namespace:
        yield from _about_registrations(part, spaces)


def _about_the_wheel(part: Part, kernel: str, *, name_given: bool) -> Iterator[str]:
    if not NAME.fullmatch(kernel):
        how = "give `--name` another" if name_given else "give one with `--name`"
        yield f"`{kernel}` is not a kernel's name (a-z, 0-9 and `-`, a letter first): {how}"
    if part.sources is not None:
        yield (
            "it holds sources for a build at first use, and a kernel is never built by its users: build the wheel with "
            '`fallback = "none"`'
        )
    if not part.variants:
        yield "it holds no compiled variant: build it with an entry of the matrix"
    inside = (part.prefix, f"{part.wheel.dist_info}/")
    outside = sorted({member.path for member in part.members if not member.path.startswith(inside)})
    if outside:
        yield (
            f"`{outside[0]}`{escape.more(len(outside))} is outside of the package `{part.package}`, and a kernel is "
            "one package: leave it out of the wheel, or move it into the package"
        )
    if f"{part.prefix}__init__.py" not in {member.path for member in part.members}:
        yield f"`{part.package}` has no `__init__.py`, which `kernels` imports: add one that calls `_variants.load()`"


def _about_variants(part: Part) -> Iterator[str]:
    """Yield why variants cannot be in a kernel repository, or not beside each other."""
    folders: dict[str, str] = {}
    for variant in (built.variant for built in part.variants):
        if variant.python is not None and not _serves_old_pythons(variant.python):
            modules = ", ".join(sorted(file.module for file in variant.files if file.module))
            yield (
                f"{variant.label} is for {variant.python} only, and a kernel serves every Python from 3.{OLDEST_PYTHON}"
                f": build {modules or 'its modules'} on the limited API of 3.{OLDEST_PYTHON} "
                f"(`Python_add_library(... USE_SABI 3.{OLDEST_PYTHON} WITH_SOABI ...)`), or register operators without "
                "a module"
            )
        if variant.libc != "glibc":
            yield f"{variant.label} is for {variant.libc}, and kernels for Linux are for glibc: leave its entry out"
        exact = variant.build.torch_version
        if not variant.stable_abi and releases.is_prerelease(exact):
            yield (
                f"{variant.label} was built for the pre-release {exact}, and a kernel is for every torch "
                f"{variant.torch}: build it for a release, or leave its entry out"
            )
        folder = variant_name(variant)
        if other := folders.get(folder):
            yield f"{other} and {variant.label} would both be `{folder}`: leave one of the entries out"
        folders[folder] = variant.label


def _serves_old_pythons(python: str) -> bool:
    match = re.fullmatch(r"abi3-cp3(\d+)", python)
    return match is not None and int(match[1]) <= OLDEST_PYTHON


def _about_registrations(part: Part, spaces: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield the libraries whose operators cannot get a name of the build's own, with the lines to change."""
    changeable = {name for names in spaces.values() for name in names}
    if len(changeable) > 1:
        yield (
            f"its operators are in {len(changeable)} namespaces ({', '.join(sorted(changeable))}), and a kernel has "
            "one: register them all under one name, or add `--keep-namespace`"
        )
    reported: set[str] = set()
    with_classes: set[str] = set()
    for built in part.variants:
        for file in built.variant.files:
            if not file.registers:
                continue
            if file.classes and file.installed not in with_classes:
                with_classes.add(file.installed)
                yield (
                    f"{Path(file.installed or file.path).name} registers a class (torch::class_), and torch ends a "
                    "process that loads it from two builds, which have the class under two names: give operators "
                    "tensors and numbers instead, or add `--keep-namespace`"
                )
            fixed = _fixed(built, file, spaces)
            if not fixed or file.installed in reported:
                continue
            reported.add(file.installed)
            name = min(fixed)
            yield (
                f"{Path(file.installed or file.path).name} registers its operators as `{name}` in every build, so that "
                "a process could load one version of the kernel only. Let their name be changeable:\n"
                f"      TORCH_LIBRARY({name}, m)  ->  TORCH_LIBRARY_EXPAND({name}, m)\n"
                '      with #include "registration.h", which `hatch-torch-ext kernels --header FILE` writes, and so '
                "for TORCH_LIBRARY_IMPL, TORCH_LIBRARY_FRAGMENT and STABLE_...; or add `--keep-namespace`"
            )


def _fixed(built: BuiltVariant, file: VariantFile, spaces: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the namespaces of a library that are not in a field, and those that its schemas name themselves."""
    here = spaces.get(file.sha256, frozenset())
    known = frozenset(file.namespaces) | {name.partition("::")[0] for name in file.operators if "::" in name}
    written = {name for name, _ in registered.read(built.source(file.path)).schemas if name}
    fixed = (known - here) | written
    return fixed or (frozenset() if here else frozenset({"NAME"}))


def _about_python(part: Part, spaces: Mapping[str, frozenset[str]], *, keep_namespace: bool) -> Iterator[str]:
    """Yield the lines of the package's Python that a kernel cannot have, each with what to write instead."""
    renamed = set() if keep_namespace else {name for names in spaces.values() for name in names}
    lines = []
    for member in sorted(part.authors):
        if member.startswith(part.prefix) and member.endswith(".py"):
            lines += list(_lines(part, member, renamed))
    if lines:
        what = "a kernel is imported under a name of its own"
        yield f"{what}: change {len(lines)} line{'s' if len(lines) > 1 else ''}" + "".join(
            f"\n      {line}" for line in lines
        )
    ops = part.wheel.text(f"{part.prefix}{OPS}") or ""
    found = NAMESPACE.search(ops)
    if renamed and not (found and found[1] in renamed):
        (name, *_) = sorted(renamed)
        yield (
            f"its Python has no place for the name of the operators: add `{part.prefix}{OPS}` with\n"
            "      import torch\n"
            "      from . import _variants\n"
            "      _variants.load()\n"
            f'      NAMESPACE = "{name}"  # `hatch-torch-ext kernels` writes another\n'
            "      ops = getattr(torch.ops, NAMESPACE)\n"
            "      def add_op_namespace_prefix(name):\n"
            '          return f"{NAMESPACE}::{name}"\n'
            "    and use `from ._ops import ops` for the operators"
        )


def _lines(part: Part, member: str, renamed: set[str]) -> Iterator[str]:
    try:
        text = (part.wheel.folder / member).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    depth = member.removeprefix(part.prefix).count("/")
    source = text.splitlines()
    found = []
    for node in ast.walk(tree):
        instead = _relative_import(node, part.package, depth)
        if not instead and member != f"{part.prefix}{OPS}":
            instead = _changeable_name(node, renamed, depth)
        if instead:
            found.append((int(getattr(node, "lineno", 1)), instead))
    for line, instead in sorted(found):
        shown = source[line - 1].partition("  #")[0].strip()[:100]
        yield f"{member}:{line}: {shown}  ->  {instead}"


def _relative_import(node: ast.AST, package: str, depth: int) -> str:
    """Return what to write in place of an absolute import of the package, "" for any other code."""
    top = package.partition(".")[0]
    match node:
        case ast.ImportFrom(level=0, module=str(module)) if _inside(module, top):
            dots = _relative(package, module, depth)
            return f"from {dots} import {', '.join(map(ast.unparse, node.names))}" if dots else "a relative import"
        case ast.Import():
            inner = [each for each in node.names if _inside(each.name, top)]
            return _import_instead(package, inner[0], depth) if inner else ""
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _inside(name, top):
            if ast.unparse(node.func).endswith("import_module"):
                return f'import_module("{_relative(package, name, depth)}", __package__)'
    return ""


def _changeable_name(node: ast.AST, renamed: set[str], depth: int) -> str:
    """Return what to write in place of an operator's full name, "" for any other code."""
    ops = f"with `from {'.' * (depth + 1)}_ops import ...`"
    match node:
        case ast.Attribute(attr=name) if name in renamed and ast.unparse(node.value) == "torch.ops":
            return f"ops, {ops}"
        case ast.Constant(value=str(text)):
            space, colons, name = text.partition("::")
            return f'add_op_namespace_prefix("{name}"), {ops}' if colons and space in renamed else ""
    return ""


def _inside(name: str, top: str) -> bool:
    return name == top or name.startswith(f"{top}.")


def _relative(package: str, module: str, depth: int) -> str:
    """Return ``module`` as a relative name, seen from a module ``depth`` folders below ``package``."""
    if module != package and not module.startswith(f"{package}."):
        return ""
    return "." * (depth + 1) + module.removeprefix(package).removeprefix(".")


def _import_instead(package: str, name: ast.alias, depth: int) -> str:
    dots = _relative(package, name.name, depth)
    if not dots.strip("."):
        return "`from . import` and the names that are used"
    path, _, last = dots.rpartition(".")
    return f"from {path or '.'} import {last}{f' as {name.asname}' if name.asname else ''}"


def licence(part: Part) -> str | None:
    """Return the licence that the wheel's metadata name."""
    fields = dict(part.wheel.metadata("METADATA"))
    return next((fields[key] for key in ("License-Expression", "License") if fields.get(key)), None)


def notes(part: Part, namespaces: frozenset[str]) -> Iterator[str]:
    """Yield what the kernel's users should know, or its author: none of it keeps the kernel from being made.

    ``namespaces`` are the names of operators in the wheel that each build of the kernel replaces by one of its own.
    """
    for name in sorted(namespaces):
        yield (
            f"what users save with the wheel (torch.export, TorchScript, pickles) has its operators as `{name}`. It "
            "loads with a later wheel, but not with the kernel, where each build has another name"
        )
    for requirement in requirements(part):
        if not any(requirement.name in known_requirements(built.variant) for built in part.variants):
            yield (
                f"the wheel requires {requirement}, and `kernels` installs nothing for a kernel: its users need it "
                "beforehand"
            )
    floors = sorted({built.variant.policy for built in part.variants if _above(built.variant)})
    for each in floors:
        yield (
            f"a variant needs {each}, and kernels are to run from {POLICY} on, as kernel-abi-check says: build in an "
            f"image of {POLICY}"
        )
    if not any(built.variant.runs_on.is_gpu for built in part.variants):
        yield (
            "all variants are for the CPU: under a torch with CUDA, `kernels` takes them only with "
            '`backend="cpu"`; the wheel serves both'
        )


def known_requirements(variant: Variant) -> Mapping[str, str]:
    """Return the distributions that a kernel of the variant may require, with their names in its metadata."""
    return _REQUIREMENTS | {name: name for name in variant.runs_on.kernel_requires}


def _above(variant: Variant) -> bool:
    ours, bound = (policy.named(name, variant.machine) for name in (variant.policy, f"{POLICY}_{variant.machine}"))
    return ours is not None and bound is not None and ours.rank > bound.rank


def requirements(part: Part) -> Iterator[Requirement]:
    """Yield what the wheel requires besides torch, extras left out."""
    for field, value in part.wheel.metadata("METADATA"):
        if field == "Requires-Dist":
            try:
                requirement = Requirement(value)
            except InvalidRequirement:
                continue
            requirement.name = canonicalize_name(requirement.name)
            extra = requirement.marker is not None and "extra" in str(requirement.marker)
            if requirement.name != "torch" and not extra:
                yield requirement


def variant_name(variant: Variant) -> str:
    """Return the name of a variant in a kernel repository: ``torch213-cxx11-cu130-x86_64-linux``."""
    digits = variant.torch.replace(".", "")
    if variant.stable_abi:
        framework = f"torch-stable-abi{digits}"
    else:
        abi = {True: "-cxx11", False: "-cxx98", None: ""}[variant.cxx11_abi]
        framework = f"torch{digits}{abi}"
    return f"{framework}-{variant.runs_on.tag}-{variant.machine}-linux"
