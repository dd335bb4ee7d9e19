"""One wheel for each variant, with a local version that names its torch, and a static index of them.

The index is a folder for any web server::

    files/            the wheels, each with its METADATA beside it (PEP 658)
    simple/           every wheel, for `pip download` and mirrors (PEP 503; PEP 691 as index.json)
    whl/torch-2.8+cu128/   the wheels for one torch, as PyTorch's own index has them
    index.html        for people: the command for each torch
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from hatch_torch_ext import wheel as wheels
from hatch_torch_ext.base import atomic, resources
from hatch_torch_ext.base.errors import MergeError, WheelError
from hatch_torch_ext.base.escape import html
from hatch_torch_ext.facts import content
from hatch_torch_ext.outlets import parts, writing
from hatch_torch_ext.outlets.merging import relaid
from hatch_torch_ext.wheel import require_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hatch_torch_ext.facts.variant import Variant
    from hatch_torch_ext.outlets.parts import Part
    from hatch_torch_ext.values import Layout

FILES = "files"
MARKER = ".torch-ext-index"
"""The file that marks a folder as such an index, to which releases may be added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedWheel:
    """A wheel of the index: ``torch`` is the folder of its torch (``torch-2.8+cu128``), ``title`` the same in words."""

    path: Path
    project: str
    version: str
    torch: str
    title: str
    sha256: str
    metadata_sha256: str
    requires_python: str | None


def _local_version(variant: Variant, *, whole: bool = False) -> str:
    """Return the local part of an exact wheel's version: ``pt28cu128``, ``pt26cpucxx98``, ``pt210stablecu12``.

    A stable-ABI variant serves later torches too, and every minor of its CUDA major. With ``whole``, all that tells
    variants apart is named: ``pt210stablecu128``, ``pt28cpucxx11``.
    """
    stable = "stable" if variant.stable_abi else ""
    abi = {None: "", True: "cxx11" if whole else "", False: "cxx98"}[variant.cxx11_abi]
    backend = variant.runs_on.tag if whole else _backend(variant)
    return f"pt{variant.torch.replace('.', '')}{stable}{backend}{abi}"


def index(paths: Sequence[Path], *, out: Path) -> tuple[IndexedWheel, ...]:
    """Split the fat wheels at ``paths`` into exact wheels below ``out``, and write the pages for all wheels in it.

    Releases that the folder already has stay. Raises ``WheelError`` for a wheel that this project did not make,
    ``MergeError`` for one that is split already, for two versions in one call and for a folder with other files.
    """
    _check_versions(paths)
    _check_folder(out)
    files = out / FILES
    with tempfile.TemporaryDirectory(prefix="torch-ext-index-") as scratch:
        read = parts.read_all(paths, folder=Path(scratch))
        for part in read:
            parts.refuse_cut(part)
        wheels_of = [(part, _wheels(part)) for part in read]
        files.mkdir(parents=True, exist_ok=True)
        (out / MARKER).touch()
        for part, made in wheels_of:
            for name, (layout, version) in made.items():
                others = sorted(other for other in made if other != name)
                writing.write(part, layout, writing.Release(version=version), out=files, others=others)
    served = tuple(_served(path) for path in sorted(files.glob("*.whl")))
    _write_pages(out, served)
    return served


def _wheels(part: Part) -> dict[str, tuple[Layout, str]]:
    """Return name -> layout and version of the exact wheel of each variant; those of one name get a longer one."""
    layouts = [(built.variant, relaid([built], [part], open_ended=False)) for built in part.variants]
    short = [_wheel_name(part, variant, layout) for variant, layout in layouts]
    count = Counter(name for name, _ in short)
    found: dict[str, list[tuple[Variant, Layout, str]]] = defaultdict(list)
    for (variant, layout), (name, version) in zip(layouts, short, strict=True):
        if count[name] > 1:
            name, version = _wheel_name(part, variant, layout, whole=True)  # noqa: PLW2901
        found[name].append((variant, layout, version))
    for name, several in found.items():
        if len(several) > 1:
            labels = ", ".join(variant.label for variant, _, _ in several)
            raise MergeError(f"the variants {labels} would get one name, {name}: leave one of them out of the matrix")
    return {name: (layout, version) for name, ((_, layout, version),) in found.items()}


def _wheel_name(part: Part, variant: Variant, layout: Layout, *, whole: bool = False) -> tuple[str, str]:
    """Return the name and the version of a variant's wheel; ``whole`` as for ``_local_version``."""
    version = parts.with_local(part.wheel.version, _local_version(variant, whole=whole))
    return writing.file_name(part, layout, writing.Release(version=version)), version


def _check_versions(paths: Sequence[Path]) -> None:
    versions: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        try:
            project, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            require_file(path)
            raise WheelError(f"{path}: is not named as a wheel. Give the file its published name back") from error
        versions[project].add(str(version))
    for name, found in sorted(versions.items()):
        if len(found) > 1:
            raise MergeError(
                f"two versions of {name} in one call ({', '.join(sorted(found))}): add one release after the other"
            )


def _check_folder(out: Path) -> None:
    writing.check_folder(out)
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise MergeError(f"{out} holds other files: name an empty folder with `-o`, or one that `index` made before")


def _served(path: Path) -> IndexedWheel:
    with tempfile.TemporaryDirectory(prefix="torch-ext-index-") as folder:
        read = wheels.read(path, folder=Path(folder))
        variants = read.variants()
        if len(variants) != 1:
            raise MergeError(f"{path} is not an exact wheel of an index: move it to another folder")
        (variant,) = variants
        requires_python = dict(read.metadata("METADATA")).get("Requires-Python")
        text = (read.folder / read.dist_info / "METADATA").read_bytes()
    metadata = path.with_name(f"{path.name}.metadata")
    if not metadata.exists() or metadata.read_bytes() != text:  # a kill came before it
        atomic.write(metadata, text)
    return IndexedWheel(
        path=path,
        project=canonicalize_name(read.distribution),
        version=read.version,
        torch=_folder(variant),
        title=_title(variant),
        sha256=content.sha256(path),
        metadata_sha256=content.sha256(metadata),
        requires_python=requires_python,
    )


def _folder(variant: Variant) -> str:
    """Return the folder of a variant's torch: ``torch-2.8+cu128``, ``torch-2.10+cu12-stable``."""
    return f"torch-{variant.torch}+{_backend(variant)}{'-stable' if variant.stable_abi else ''}"


def _title(variant: Variant) -> str:
    newer = " and newer" if variant.stable_abi else ""
    backend = variant.runs_on
    if not backend.is_gpu:
        return f"torch {variant.torch}{newer}, any build"
    return f"torch {variant.torch}{newer}, built for {backend.words} or a newer {backend.major}.x"


def _backend(variant: Variant) -> str:
    return variant.runs_on.major_tag if variant.stable_abi else variant.runs_on.tag


def _write_pages(out: Path, served: Sequence[IndexedWheel]) -> None:
    folders: dict[str, list[IndexedWheel]] = defaultdict(list)
    for each in served:
        folders["simple"].append(each)
        folders[f"whl/{each.torch}"].append(each)
    for folder, inside in sorted(folders.items()):
        projects: dict[str, list[IndexedWheel]] = defaultdict(list)
        for each in inside:
            projects[each.project].append(each)
        up = "../" * folder.count("/")
        _page(out / folder, _list_of_projects(projects), {"meta": {"api-version": "1.1"}, "projects": _named(projects)})
        for project, files in sorted(projects.items()):
            links = sorted(files, key=lambda each: (Version(each.version), each.path.name))
            _page(
                out / folder / project,
                _links(project, links, f"../../{up}{FILES}"),
                _json(project, links, f"../../{up}{FILES}"),
            )
    atomic.write(out / "index.html", _people(served).encode())


def _page(folder: Path, html: str, data: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write(folder / "index.html", html.encode())
    atomic.write(folder / "index.json", f"{json.dumps(data, indent=1, sort_keys=True)}\n".encode())


def _named(projects: Iterable[str]) -> list[dict[str, str]]:
    return [{"name": project} for project in sorted(projects)]


def _html(title: str, body: Iterable[str]) -> str:
    head = '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.1">'
    return "\n".join([f"{head}<title>{html(title)}</title></head><body>", *body, "</body></html>"]) + "\n"


def _list_of_projects(projects: Iterable[str]) -> str:
    return _html(
        "Simple index", (f'<a href="{html(project)}/">{html(project)}</a><br>' for project in sorted(projects))
    )


def _links(project: str, served: Iterable[IndexedWheel], files: str) -> str:
    lines = []
    for each in served:
        python = f' data-requires-python="{html(each.requires_python)}"' if each.requires_python else ""
        core = f' data-core-metadata="sha256={each.metadata_sha256}"'
        href = f"{files}/{quote(each.path.name)}#sha256={each.sha256}"
        lines.append(f'<a href="{href}"{python}{core}>{html(each.path.name)}</a><br>')
    return _html(project, lines)


def _json(project: str, served: Sequence[IndexedWheel], files: str) -> dict[str, object]:
    return {
        "meta": {"api-version": "1.1"},
        "name": project,
        "versions": list(dict.fromkeys(each.version for each in served)),
        "files": [
            {
                "filename": each.path.name,
                "url": f"{files}/{quote(each.path.name)}",
                "hashes": {"sha256": each.sha256},
                "size": each.path.stat().st_size,
                "core-metadata": {"sha256": each.metadata_sha256},
                **({"requires-python": each.requires_python} if each.requires_python else {}),
            }
            for each in served
        ],
    }


def _people(served: Sequence[IndexedWheel]) -> str:
    """Return the page for people: one row for each torch, with the command to type."""
    newest: dict[tuple[str, str], IndexedWheel] = {}
    for each in sorted(served, key=lambda each: Version(each.version)):
        newest[each.project, each.torch] = each
    rows = []
    for (project, torch), each in sorted(newest.items(), key=lambda item: _natural(item[0])):
        public = parts.without_local(each.version)
        rows.append(
            f"<tr><td>{html(each.title)}</td><td>{html(project)} {html(public)}</td>"
            f'<td><code>pip install {html(project)} --index-url <span class="here"></span>whl/{html(torch)}/'
            f"</code></td></tr>"
        )
    template = resources.text("index.html")
    return template.replace("<!-- rows -->", "\n".join(rows))


def _natural(key: tuple[str, str]) -> tuple[str, tuple[int, ...], str]:
    project, torch = key
    release = torch.removeprefix("torch-").partition("+")[0]
    return project, tuple(int(part) for part in release.split(".")), torch
