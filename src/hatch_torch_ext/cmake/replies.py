"""CMake's File API: what a configured build folder says of its compilers, targets and install rules."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLIENT = "client-hatch-torch-ext"
OF_THIS_MACHINE = ("-prefix-map=", "--orig_src_path_name=")
"""Options of ours that say where files lie, not how they are compiled."""
API = Path(".cmake") / "api" / "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target of the project. ``artifacts`` are file names; ``flags`` are (language, its options and definitions).

    ``outside`` are the artifacts that land outside the build folder, where every entry writes the same file.
    """

    name: str
    type: str
    artifacts: tuple[str, ...]
    outside: tuple[Path, ...] = ()
    flags: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def loadable(self) -> bool:
        """Whether the target makes something that a wheel of ours carries."""
        return self.type in ("MODULE_LIBRARY", "SHARED_LIBRARY")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRule:
    """An ``install()``: its destination as written, or None for one that runs code, and the file and line it is in."""

    destination: str | None
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """``compilers`` by language (``GNU 12.2.0``); ``rules`` are all install rules of the project."""

    compilers: Mapping[str, str]
    targets: tuple[Target, ...]
    rules: tuple[InstallRule, ...]


def query(build_dir: Path) -> None:
    """Ask the next configure step of ``build_dir`` for a reply."""
    folder = build_dir / API / "query" / CLIENT
    folder.mkdir(parents=True, exist_ok=True)
    requests = [{"kind": "codemodel", "version": 2}, {"kind": "toolchains", "version": 1}]
    (folder / "query.json").write_text(json.dumps({"requests": requests}), encoding="utf-8")


def read(build_dir: Path) -> Reply:
    """Return the reply to ``query``."""
    folder = build_dir / API / "reply"
    index = _json(max(folder.glob("index-*.json"), key=lambda path: path.name))
    answers = {answer["kind"]: answer for answer in index["reply"][CLIENT]["query.json"]["responses"]}
    model = _json(folder / answers["codemodel"]["jsonFile"])
    compilers = {
        found["language"]: f"{found['compiler'].get('id', '')} {found['compiler'].get('version', '')}".strip()
        for found in _json(folder / answers["toolchains"]["jsonFile"])["toolchains"]
    }
    targets, rules = [], []
    for configuration in model["configurations"]:
        targets += [_target(_json(folder / target["jsonFile"])) for target in configuration["targets"]]
        for directory in configuration["directories"]:
            rules += _rules(_json(folder / directory["jsonFile"]), source=Path(model["paths"]["source"]))
    return Reply(
        compilers=compilers,
        targets=tuple(sorted(targets, key=lambda target: target.name)),
        rules=tuple(rules),
    )


def flags(reply: Reply, *, rename: Sequence[tuple[Path, str]]) -> tuple[tuple[str, str], ...]:
    """Return (``target language``, flags) of all compiled targets, with the folders of this machine ``rename``-d."""
    found = []
    for target in reply.targets:
        for language, options in target.flags:
            text = " ".join(option for option in options if not any(part in option for part in OF_THIS_MACHINE))
            for old, new in reversed(rename):
                text = text.replace(str(old), new)
            found.append((f"{target.name} {language}", text))
    return tuple(sorted(found))


def _rules(directory: dict[str, Any], *, source: Path) -> list[InstallRule]:
    graph = directory["backtraceGraph"]
    found = []
    for installer in directory.get("installers", []):
        where = source / directory["paths"]["source"] / "CMakeLists.txt"
        line = ""
        if "backtrace" in installer:
            node = graph["nodes"][installer["backtrace"]]
            where = source / graph["files"][node["file"]]
            line = f":{node['line']}" if "line" in node else ""
        found.append(InstallRule(destination=installer.get("destination"), where=f"{where}{line}"))
    return found


def _target(data: dict[str, Any]) -> Target:
    groups = {}
    for group in data.get("compileGroups", []):
        if group["language"] not in groups:
            fragments = " ".join(part["fragment"].strip() for part in group.get("compileCommandFragments", []))
            options = [_one_word(option) for option in shlex.split(fragments)]  # a folder's name may have spaces
            defines = sorted(f"-D{define['define']}" for define in group.get("defines", []))
            groups[group["language"]] = (*options, *defines)
    artifacts = [Path(artifact["path"]) for artifact in data.get("artifacts", [])]
    return Target(
        name=data["name"],
        type=data["type"],
        artifacts=tuple(path.name for path in artifacts),
        outside=tuple(path for path in artifacts if path.is_absolute()),
        flags=tuple(sorted(groups.items())),
    )


def _one_word(option: str) -> str:
    return shlex.quote(option) if any(letter.isspace() for letter in option) else option


def _json(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data
