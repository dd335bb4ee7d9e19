"""What CMake answers in its File API: targets, inputs, flags, and what the install rules will install."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatch_torch_ext.base import process, untrusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hatch_torch_ext.values import Setup

CLIENT = "client-hatch-torch-ext"
OF_THIS_MACHINE = ("-prefix-map=", "--orig_src_path_name=", "-fdiagnostics-color", "-fcolor-diagnostics")
"""Options for the places of files and the look of errors, which do not affect the code."""
VENDORED = frozenset({"third_party", "third-party", "thirdparty", "3rdparty", "external", "extern", "vendor", "deps"})
"""Folders in which projects keep the sources of others."""
API = Path(".cmake") / "api" / "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target of the project: ``flags`` are (language, its options and definitions).

    ``files`` are what it makes, and ``archives`` the static libraries in its link command.
    """

    name: str
    type: str
    flags: tuple[tuple[str, tuple[str, ...]], ...]
    files: tuple[Path, ...] = ()
    archives: tuple[Path, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the files that it makes."""
        return tuple(path.name for path in self.files)

    @property
    def loadable(self) -> bool:
        """Return whether the target makes a file that belongs into a wheel."""
        return self.type in ("MODULE_LIBRARY", "SHARED_LIBRARY")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRule:
    """An ``install()``: its destination as written (None for one that runs code), and the file and line that it is in.

    ``files`` are (name below the destination, source) of what it installs beside targets; with ``folders`` they are
    folders, from which patterns may exclude files. ``project`` is the name in the nearest ``project()``, and ``folder``
    the sources that the rule belongs to.
    """

    destination: str | None
    where: str
    project: str = ""
    folder: Path = Path()
    targets: tuple[str, ...] = ()
    """The names below the destination of the targets that it installs."""
    files: tuple[tuple[str, Path], ...] = ()
    folders: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """``compilers`` by language (``GNU 12.2.0``); ``rules`` are all install rules of the project.

    ``files`` are what CMake read that neither came with it nor was made by it; ``sources`` those of all targets.
    """

    compilers: Mapping[str, str]
    targets: tuple[Target, ...]
    rules: tuple[InstallRule, ...]
    files: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()


def query(build_dir: Path) -> None:
    """Ask the next configure step of ``build_dir`` for a reply, and remove the last one.

    CMake names the files of a reply by their content, and leaves one that is there as it is, cut off or not.
    """
    shutil.rmtree(build_dir / API / "reply", ignore_errors=True)
    folder = build_dir / API / "query" / CLIENT
    folder.mkdir(parents=True, exist_ok=True)
    kinds = (("codemodel", 2), ("toolchains", 1), ("cmakeFiles", 1))
    requests = [{"kind": kind, "version": version} for kind, version in kinds]
    (folder / "query.json").write_text(json.dumps({"requests": requests}), encoding="utf-8")


def read(build_dir: Path) -> Reply:
    """Return the reply to ``query``. Raises one of ``untrusted.DAMAGED``."""
    folder = build_dir / API / "reply"
    index = _json(max(folder.glob("index-*.json"), key=lambda path: path.name))
    responses = index["reply"][CLIENT]["query.json"]["responses"]
    answers = {answer["kind"]: _json(folder / answer["jsonFile"]) for answer in responses}
    model = answers["codemodel"]
    source, build = (Path(model["paths"][name]) for name in ("source", "build"))
    compilers = {
        found["language"]: f"{found['compiler'].get('id', '')} {found['compiler'].get('version', '')}".strip()
        for found in answers["toolchains"]["toolchains"]
    }
    targets: list[Target] = []
    rules: list[InstallRule] = []
    sources: set[str] = set()
    for configuration in model["configurations"]:
        for target in (_json(folder / each["jsonFile"]) for each in configuration["targets"]):
            targets.append(_target(target, build))
            sources |= {file["path"] for file in target.get("sources", [])}
        for directory in configuration["directories"]:
            project = configuration["projects"][directory["projectIndex"]]["name"]
            rules += _rules(_json(folder / directory["jsonFile"]), source=source, project=project)
    files = (file for file in answers["cmakeFiles"]["inputs"] if not (file.get("isCMake") or file.get("isGenerated")))
    return Reply(
        compilers=compilers,
        targets=tuple(sorted(targets, key=lambda target: target.name)),
        rules=tuple(rules),
        files=_absolute({file["path"] for file in files}, source),
        sources=_absolute(sources, source),
    )


def _absolute(paths: Iterable[str], source: Path) -> tuple[Path, ...]:
    return tuple(sorted(Path(os.path.normpath(source / path)) for path in paths))


def flags(reply: Reply, *, rename: Sequence[tuple[Path, str]]) -> tuple[tuple[str, str], ...]:
    """Return (``target language``, flags) of all compiled targets; ``rename`` maps the machine's folders in them."""
    found = []
    for target in reply.targets:
        for language, options in target.flags:
            text = " ".join(option for option in options if not any(part in option for part in OF_THIS_MACHINE))
            for old, new in reversed(rename):
                text = text.replace(str(old), new)
            found.append((f"{target.name} {language}", text))
    return tuple(sorted(set(found)))


def of_dependencies(reply: Reply, prefix: Path, *, roots: Sequence[Path], build: Path) -> dict[str, list[str]]:
    """Return project -> what its own install rules left in ``prefix``, for the projects that are dependencies.

    They are in the build folder (FetchContent), outside of the author's ``roots`` (the project's folder, and that of
    CMakeLists.txt, which may be elsewhere), or in a folder for dependencies.
    """
    found: dict[str, set[str]] = {}
    for rule in reply.rules:
        root = next((each for each in roots if rule.folder.is_relative_to(each)), None)
        own = root is not None and not rule.folder.is_relative_to(build)
        if rule.destination is None or (root and own and VENDORED.isdisjoint(rule.folder.relative_to(root).parts)):
            continue
        names = [*rule.targets, *(name for name, _ in (*rule.files, *rule.folders))]
        places = [Path(os.path.normpath(prefix / rule.destination / name)) for name in names]
        inside = [path.relative_to(prefix) for path in places if path.is_relative_to(prefix) and path.exists()]
        found.setdefault(rule.project, set()).update(path.as_posix() for path in inside)
    return {project: sorted(places) for project, places in sorted(found.items()) if places}


def _rules(directory: dict[str, Any], *, source: Path, project: str) -> list[InstallRule]:
    graph = directory["backtraceGraph"]
    found = []
    for installer in directory.get("installers", []):
        where = source / directory["paths"]["source"] / "CMakeLists.txt"
        line = ""
        if "backtrace" in installer:
            node = graph["nodes"][installer["backtrace"]]
            where = source / graph["files"][node["file"]]
            line = f":{node['line']}" if "line" in node else ""
        paths = tuple(_paths(installer, source=source))
        found.append(
            InstallRule(
                destination=installer.get("destination"),
                where=f"{where}{line}",
                project=project,
                folder=Path(os.path.normpath(source / directory["paths"]["source"])),
                targets=tuple(name for name, _ in paths) if installer["type"] == "target" else (),
                files=paths if installer["type"] == "file" and not installer.get("isExcludeFromAll") else (),
                folders=paths if installer["type"] == "directory" and not installer.get("isExcludeFromAll") else (),
            )
        )
    return found


def _paths(installer: dict[str, Any], *, source: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name below the destination, source): of a plain path, the last part is the name."""
    for path in installer.get("paths", []):
        pair = path if isinstance(path, dict) else {"from": path, "to": path.rpartition("/")[2]}
        yield pair["to"], source / pair["from"]


def archives(reply: Reply) -> tuple[tuple[str, Path], ...]:
    """Return (file name of a library, static library of the project that its link command has)."""
    own = {file for target in reply.targets if target.type == "STATIC_LIBRARY" for file in target.files}
    return tuple(
        (name, archive)
        for target in reply.targets
        if target.loadable
        for name in target.names
        for archive in target.archives
        if archive in own
    )


def _target(data: dict[str, Any], build: Path) -> Target:
    # Sources may have options of their own. So may definitions, another one for each source: those are left out.
    groups: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for group in data.get("compileGroups", []):
        fragments = " ".join(part["fragment"].strip() for part in group.get("compileCommandFragments", []))
        options = tuple(_one_word(option) for option in shlex.split(fragments))  # a folder's name may have spaces
        defines = sorted(f"-D{define['define']}" for define in group.get("defines", []))
        groups.setdefault((group["language"], options), (*options, *defines))
    return Target(
        name=data["name"],
        type=data["type"],
        flags=tuple(sorted((language, flags) for (language, _), flags in groups.items())),
        files=tuple(Path(os.path.normpath(build / each["path"])) for each in data.get("artifacts", [])),
        archives=_archives(data.get("link", {}).get("commandFragments", []), build),
    )


def _archives(fragments: Iterable[Mapping[str, str]], build: Path) -> tuple[Path, ...]:
    """Return the static libraries among the words of a link command, which starts in ``build``."""
    words = [word for each in fragments if each["role"] == "libraries" for word in shlex.split(each["fragment"])]
    found = (word.rpartition(",")[2] for word in words if word.endswith(".a"))
    return tuple(dict.fromkeys(Path(os.path.normpath(build / word)) for word in found))


def _one_word(option: str) -> str:
    return shlex.quote(option) if any(letter.isspace() for letter in option) else option


def _json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = untrusted.json(path.read_text(encoding="utf-8"))
    return data


_RULE = re.compile(r'^ *file\(INSTALL DESTINATION ("[^"\n]*") TYPE DIRECTORY ([^\n]*)$', re.MULTILINE)
"""A rule as CMake writes it into cmake_install.cmake: one line, the folders quoted, then what is left out."""
_PREFIX = "${CMAKE_INSTALL_PREFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """What will be in the install tree besides targets, as far as it is known before anything is compiled.

    ``files`` and ``folders`` are (place in the tree, source); ``code`` says that install rules also run code, which may
    install anything.
    """

    files: tuple[tuple[str, Path], ...]
    folders: tuple[tuple[str, Path], ...]
    code: bool


def install_plan(setup: Setup, reply: Reply) -> InstallPlan:
    """Return what the install rules will install, without what Ninja makes."""
    build, prefix, site = setup.build, setup.prefix, setup.environment.site_packages
    made = (build / "build.ninja").read_text(encoding="utf-8", errors="replace")
    found: dict[str, list[tuple[str, Path]]] = {"files": [], "folders": []}
    for rule in reply.rules:
        folder = Path(os.path.normpath(prefix / (rule.destination or "")))
        folder = Path(site.name) / folder.relative_to(site) if folder.is_relative_to(site) else folder
        folder = folder.relative_to(prefix) if folder.is_relative_to(prefix) else folder
        for kind, paths in (("files", rule.files), ("folders", rule.folders)):
            found[kind] += [(os.path.normpath(folder / name), path) for name, path in paths]
    files = [
        (place, path)
        for place, path in found["files"]
        if path.is_file() and not (path.is_relative_to(build) and path.relative_to(build).as_posix() in made)
    ]
    return InstallPlan(
        files=(*files, *_of_folders(setup, [path for _, path in found["folders"]])),
        folders=tuple(found["folders"]),
        code=any(rule.destination is None for rule in reply.rules),
    )


def _of_folders(setup: Setup, folders: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """Return (place in the install tree, source) of the files of ``folders``, but for what the build may change.

    CMake runs only these rules, and makes links in a folder of ours.
    """
    there = [path for path in folders if path.is_dir() and not path.is_relative_to(setup.build)]
    rules = list(_planned_rules(setup, there))
    if not rules:
        return ()
    scratch, script = setup.folder / "installplan", setup.folder / "installplan.cmake"
    shutil.rmtree(scratch, ignore_errors=True)
    script.write_text("\n".join([f'set(CMAKE_INSTALL_PREFIX "{scratch}")', *rules, ""]), encoding="utf-8")
    links = {"CMAKE_INSTALL_MODE": "ABS_SYMLINK", "DESTDIR": None}
    # Where it fails, so will the installation, which then says why.
    process.run([setup.toolchain.cmake.path, "-P", script], env_changes=links, check=False)
    found = [(path.relative_to(scratch).as_posix(), path.resolve()) for path in sorted(scratch.rglob("*"))]
    return tuple((place, path) for place, path in found if path.is_file())


def _planned_rules(setup: Setup, folders: list[Path]) -> Iterator[str]:
    copied = {str(folder).rstrip("/") for folder in folders}
    site = setup.environment.site_packages
    for script in sorted(setup.build.rglob("cmake_install.cmake")):
        for match in _RULE.finditer(script.read_text(encoding="utf-8", errors="replace")):
            sources = {path.rstrip("/") for path in re.findall(r'"([^"]*)"', match[2].partition(" REGEX ")[0])}
            place = match[1].replace(str(site), f"{_PREFIX}/{site.name}").replace(str(setup.prefix), _PREFIX)
            if sources <= copied and place.startswith(f'"{_PREFIX}'):
                yield f"file(INSTALL DESTINATION {place} TYPE DIRECTORY {match[2]}"
