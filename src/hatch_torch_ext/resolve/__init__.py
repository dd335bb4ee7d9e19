"""Requirements -> wheels with address and hash, resolved by uv; or why there is none. No wheel is downloaded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from hatch_torch_ext.base import process, redact, untrusted, uv
from hatch_torch_ext.base.errors import ProcessError, SdkError
from hatch_torch_ext.facts.backend import local_tag
from hatch_torch_ext.facts.releases import TORCH_INDEX
from hatch_torch_ext.remote import index, pipconfig
from hatch_torch_ext.remote.http import Http, RemoteError
from hatch_torch_ext.remote.settings import PROXY_VARIABLES, UV_INDEX_VARIABLES, public, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from packaging.tags import Tag
    from packaging.version import Version

    from hatch_torch_ext.remote.settings import IndexSettings
    from hatch_torch_ext.store import Store
    from hatch_torch_ext.values import Entry, Interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedWheel:
    """A wheel at ``url`` (http, https, or file; no credentials).

    ``size`` is in bytes, if known. ``sha256`` is what the index states; bytes that are read by ranges cannot be
    compared with it. ``unverified``: the server's certificate is not checked (pip's ``trusted-host``).
    """

    name: str
    version: str
    url: str
    sha256: str | None
    size: int | None
    unverified: bool = False
    pinned: bool = False
    """Whether the author's own requirement states the hash: all bytes are fetched and compared with it."""

    @property
    def path(self) -> Path | None:
        """Return the path of a wheel on this machine's disk, or None."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    @property
    def key(self) -> str:
        """Return the key in the store: a hash of where the wheel's bytes come from and what is stated of them.

        The stated hash is not enough: it cannot be checked by ranges, so one index could pass its bytes off as
        another's.
        """
        stamp: tuple[int, ...] = ()
        if (path := self.path) is not None:
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        facts = (self.url, self.unverified, self.pinned, self.sha256, self.size, stamp)
        return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> ResolvedWheel:
        """Return the wheel that a record describes. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        wheel = cls(**fields)
        texts = (wheel.name, wheel.version, wheel.url)
        if not all(isinstance(text, str) for text in texts) or not {wheel.unverified, wheel.pinned} <= {True, False}:
            raise TypeError("not a wheel")
        if not isinstance(wheel.sha256, str | None) or not isinstance(wheel.size, int | None):
            raise TypeError("not a wheel")
        urlsplit(wheel.url)
        return wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The scope of resolving and fetching: one entry, its Python, and the settings and folders to use."""

    entry: Entry
    interpreter: Interpreter
    python: Path
    root: Path
    store: Store
    http: Http
    report: Callable[[str], None]

    @property
    def settings(self) -> IndexSettings:
        """Return the settings of package indexes."""
        return self.http.settings


UV_TIMEOUT = 600.0
IDLE = frozenset({*UV_INDEX_VARIABLES, "UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_NO_PROGRESS"})
"""Variables of uv that are passed in another way, or that do not affect resolving."""
_SHA256 = re.compile(r"[#&]sha256=(\w+)")
"""The hash of a wheel in the requirement that names its address."""
UNREACHABLE = ("Failed to fetch", "error sending request", "timed out", "dns error", "Could not connect")


def wheels(scope: Scope, requirements: Sequence[str], *, dependencies: bool) -> tuple[ResolvedWheel, ...]:
    """Return one wheel for each requirement (with ``dependencies``, for each package needed), sorted by name.

    A resolution is kept for a day. If the index cannot be reached, an older one is used, and a message says so. Raises
    ``SdkError``.
    """
    name = _record_name(scope, requirements, dependencies=dependencies) + ".json"
    kept = scope.store.answer(name, _wheels)
    if kept is not None and kept.is_fresh:
        return kept.value
    try:
        lock = _compile(scope, requirements, dependencies=dependencies)
    except ProcessError as error:
        output = scope.settings.scrub(error.words)
        if kept is not None and any(sign in output for sign in UNREACHABLE):
            names = ", ".join(f"{wheel.name} {wheel.version}" for wheel in kept.value)
            scope.report(f"the index cannot be reached; using {names} as resolved before")
            return kept.value
        constrained = pipconfig.contradiction(os.environ, requirements, pip=False)
        why = constrained or (None if dependencies else why_none(scope, requirements[0]))
        listed = ", ".join(requirements)
        named = any(Requirement(line).url is not None for line in requirements)
        remedy = "Fetch the wheel again, or correct its address" if named else "Check `index-url`"
        detail = why or f"no wheel can be found for {listed}. uv says:\n{process.tail(output)}\n{remedy}"
        raise SdkError(scope.entry.name, detail) from error
    found = _read(scope, requirements, lock)
    _check_requirements(scope, requirements, found)
    if all(redact.without_tokens(wheel.url) == wheel.url for wheel in found):  # a token is not stored, and may expire
        scope.store.keep_answer(name, wheels=[asdict(wheel) for wheel in found])
    return found


def _wheels(answer: Mapping[str, Any]) -> tuple[ResolvedWheel, ...]:
    """Return the wheels of a resolution that was kept."""
    return tuple(ResolvedWheel.parse(one) for one in answer["wheels"])


def _check_requirements(scope: Scope, requirements: Sequence[str], found: Sequence[ResolvedWheel]) -> None:
    """Raise ``SdkError`` if uv resolved to something other than requested, which its settings can cause."""
    versions = {wheel.name: wheel.version for wheel in found}
    for line in requirements:
        requirement = Requirement(line)
        version = versions.get(canonicalize_name(requirement.name))
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        constrained = pipconfig.contradiction(os.environ, [line], pip=False)
        variables = _variables(os.environ)
        undo = f"run `unset {' '.join(variables)}` before the build, or " if variables else ""
        raise SdkError(
            scope.entry.name,
            constrained
            or f"uv found {f'{requirement.name} {version}' if version else 'nothing'} for `{line}`, because its "
            f"settings change the requirement: {undo}correct `[tool.uv]` of pyproject.toml or uv.toml "
            "(`override-dependencies`, `exclude-dependencies`).",
        )


def _record_name(scope: Scope, requirements: Sequence[str], *, dependencies: bool) -> str:
    python, settings = scope.interpreter, scope.settings
    stamps = [(link, _mtime(link)) for link in settings.find_links]
    request = (sorted(requirements), dependencies, python.version, python.tag, python.machine)
    own_settings = (settings.indexes, stamps, settings.strategy, settings.trusted_hosts)
    where = (*own_settings, _uv_settings(scope.root, os.environ))
    return hashlib.sha256(repr((request, where)).encode()).hexdigest()


def _uv_settings(root: Path, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return whatever else affects uv's resolution: its configuration files for the project, variables, constraints.

    A resolution is reused only where these are the same.
    """
    found = [(name, environ[name]) for name in _variables(environ)]
    found += [(where, line) for where, _, line in pipconfig.limits(environ, pip=False)]
    for folder in (root, *root.parents):
        for name in ("uv.toml", "pyproject.toml"):
            try:
                text = (folder / name).read_text(encoding="utf-8")
                own = untrusted.toml(text).get("tool", {}).get("uv") if name == "pyproject.toml" else text
            except (OSError, ValueError, AttributeError):
                continue
            if own:
                found.append((str(folder), repr(own)))
    config = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent"), ".config"))
    for file in (config / "uv" / "uv.toml", Path("/etc/uv/uv.toml")):
        with contextlib.suppress(OSError, ValueError):
            found.append((str(file), file.read_text(encoding="utf-8")))
    return tuple(found)


def _variables(environ: Mapping[str, str]) -> list[str]:
    """Return the names of uv's variables that are settings; `uv build` sets others for itself."""
    return [name for name in sorted(environ) if re.match(r"UV_(?!INTERNAL__)", name) and name not in IDLE]


def _mtime(link: str) -> int:
    parts = urlsplit(link)
    try:
        return Path(unquote(parts.path) if parts.scheme == "file" else link).stat().st_mtime_ns
    except (OSError, ValueError):
        return 0


def _compile(scope: Scope, requirements: Sequence[str], *, dependencies: bool) -> Mapping[str, object]:
    settings = scope.settings
    lines = [f"--index-url {settings.index}"] if settings.index else ["--no-index"]
    lines += [f"--extra-index-url {url}" for url in settings.extra]
    lines += [f"--find-links {link}" for link in settings.find_links]
    command = [uv.find(), "pip", "compile", "--quiet", "--no-header"]
    command += ["--format", "pylock.toml", "--python", str(scope.python), "--only-binary", ":all:"]
    if scope.interpreter.machine != platform.machine():
        # The newest glibc that uv knows: whether the user's machine has the glibc of a wheel is checked elsewhere.
        command += ["--python-platform", f"{scope.interpreter.machine}-manylinux_2_40"]
    if not dependencies:
        command.append("--no-deps")
    if settings.strategy is not None:
        command += ["--index-strategy", settings.strategy]
    for host in settings.trusted_hosts:
        command += ["--allow-insecure-host", host]
    changes: dict[str, str | None] = dict.fromkeys(UV_INDEX_VARIABLES)
    changes["UV_HTTP_TIMEOUT"] = f"{max(settings.timeout, 1):.0f}"
    changes["VIRTUAL_ENV"] = None
    if settings.proxy is not None:
        changes |= dict.fromkeys(PROXY_VARIABLES, settings.proxy)
    if settings.certificates is not None:
        changes["SSL_CERT_FILE"] = str(settings.certificates)
    # On stdin: index addresses may hold passwords, which other users see in a command line, and a file would outlive a
    # kill.
    text = "\n".join([*lines, *requirements]) + "\n"
    done = process.run([*command, "-"], cwd=scope.root, env_changes=changes, timeout=UV_TIMEOUT, given=text)
    lock: dict[str, object] = untrusted.toml(done.stdout)
    return lock


def _read(scope: Scope, requirements: Sequence[str], lock: Mapping[str, object]) -> tuple[ResolvedWheel, ...]:
    found = []
    # uv does not compare this hash with a wheel on disk: it states the hash of the file.
    pinned = {
        canonicalize_name(Requirement(line).name): match[1].lower()
        for line in requirements
        if (match := _SHA256.search(line)) is not None
    }
    packages = lock.get("packages", [])
    for package in packages if isinstance(packages, list) else []:
        files = package.get("wheels") or ([package["archive"]] if "archive" in package else [])
        if not files:
            raise SdkError(
                scope.entry.name,
                f"{package.get('name')} comes from a folder or a repository, not from a wheel: "
                'use `sdk = "environment"` for it',
            )
        best = files[0]
        if len(files) > 1:
            best = max(files, key=lambda file: _preference(_where(file), scope.interpreter.tag))
        where = _where(best)
        name = canonicalize_name(package["name"])
        found.append(
            ResolvedWheel(
                name=name,
                version=str(package.get("version") or _version(where)),
                url=without_credentials(where) if urlsplit(where).scheme != "file" else where,
                sha256=pinned.get(name) or best.get("hashes", {}).get("sha256"),
                size=best.get("size"),
                unverified=scope.http.is_trusted(where),
                pinned=name in pinned,
            )
        )
    return tuple(sorted(found, key=lambda wheel: wheel.name))


def _where(file: Mapping[str, str]) -> str:
    return file.get("url") or Path(file["path"]).absolute().as_uri()


def _file_name(url: str) -> str:
    return unquote(public(url).rpartition("/")[2])


def _version(url: str) -> str:
    try:
        return str(parse_wheel_filename(_file_name(url))[1])
    except InvalidWheelFilename:
        return "0"


_OLD_POLICIES = {"manylinux1": (2, 5, 0), "manylinux2010": (2, 12, 0), "manylinux2014": (2, 17, 0)}
"""The old names of policies, each just below its new one (``manylinux_2_17``)."""
_POLICY = re.compile(r"(?:many|musl)linux_(\d+)_(\d+)_")


def _preference(url: str, python: str) -> tuple[object, ...]:
    """Return what installers compare of wheels of one version: how close the tags are, then the build number.

    uv lists every wheel that fits the machine and the interpreter, by name, and not in the order of choice. ``python``
    is the interpreter's tag (``cp311``).
    """
    _, _, build, tags = parse_wheel_filename(_file_name(url))
    return max(_closeness(tag, python) for tag in tags), build


def _closeness(tag: Tag, python: str) -> tuple[object, ...]:
    abi = ("none", "abi3", python).index(tag.abi) if tag.abi in {"none", "abi3", python} else -1
    version = re.search(r"\d+", tag.interpreter)
    policy = _POLICY.match(tag.platform)
    old = _OLD_POLICIES.get(tag.platform.partition("_")[0], (0, 0, int(tag.platform != "any")))
    libc = (int(policy[1]), int(policy[2]), 1) if policy else old
    return abi, int(version[0]) if version else 0, libc


SHOWN = 8
ATTEMPTS = 2


def why_none(scope: Scope, requirement: str) -> str | None:
    """Return one sentence on why no wheel fits, and what would, or None if the index does not explain it."""
    required = Requirement(requirement)
    names, problems = _files(scope, required.name)
    found = _versions(names)
    if not found:
        return " ".join(problems) or f"no index has a wheel of {required.name}. Check `index-url`"
    fitting = [version for version in found if required.specifier.contains(version, prereleases=True)]
    if not fitting:
        nearest = ", ".join(str(version) for version in sorted(_nearest(requirement, found)[:SHOWN]))
        elsewhere = _elsewhere(required, scope)
        none = f"no release matches `{requirement}`. The nearest are {nearest}. {elsewhere or 'Correct the matrix'}"
        return " ".join(problems) or none  # nothing is known of an index that does not answer
    best = max(fitting)
    here = {tag for tag in found[best] if tag.platform.endswith(scope.interpreter.machine)}
    if not here:
        platforms = ", ".join(sorted({tag.platform for tag in found[best]}))
        machine = scope.interpreter.machine
        return f"{required.name} {best} has no wheel for {machine} Linux; it has {platforms}. Skip {scope.entry.name}"
    tags = {tag.abi if tag.abi != "none" else tag.interpreter for tag in here}
    pythons = sorted(tags, key=_python_order)
    if scope.interpreter.tag not in pythons:
        return (
            f"{required.name} {best} has no wheel for {scope.interpreter.tag}; it has {', '.join(pythons)}. "
            f"Correct `python` in the matrix, or skip {scope.entry.name}"
        )
    return None


def _versions(names: Iterable[str]) -> dict[Version, set[Tag]]:
    """Return the versions of the wheels with these file names, and the tags of each."""
    found: dict[Version, set[Tag]] = {}
    for name in names:
        try:
            _, version, _, wheel_tags = parse_wheel_filename(name)
        except ValueError:  # an invalid name, or a version with too many digits
            continue
        found.setdefault(version, set()).update(wheel_tags)
    return found


def _elsewhere(required: Requirement, scope: Scope) -> str | None:
    """Return which of torch's own indexes has such builds, unless the entry uses one of them already."""
    specifier = str(required.specifier)
    local = local_tag(specifier)
    channel = "/nightly" if ".dev" in specifier else "/test" if required.specifier.prereleases else ""
    used = any(public(index).startswith(TORCH_INDEX) for index in scope.settings.indexes)
    if required.name != "torch" or used or not (local or channel):
        return None
    return f'torch\'s own index may have it: `index-url = "{TORCH_INDEX}{channel}/{local or "cpu"}"`'


def _nearest(requirement: str, versions: Iterable[Version]) -> list[Version]:
    numbers = [int(number[:9]) for number in re.findall(r"\d+", requirement.rpartition("==")[2].partition("+")[0])][:3]
    target = (*numbers, 0, 0, 0)[:3]

    def distance(version: Version) -> tuple[int, ...]:
        release = (*version.release, 0, 0, 0)[:3]
        return tuple(abs(ours - theirs) for ours, theirs in zip(target, release, strict=True))

    return sorted(sorted(versions, reverse=True), key=distance)


def _python_order(tag: str) -> tuple[int, ...]:
    match = re.match(r"[a-z]+(\d)(\d*)(.*)", tag)
    return (int(match[1]), int(match[2] or 0), len(match[3])) if match else (0,)


def _files(scope: Scope, name: str) -> tuple[list[str], list[str]]:
    files: list[str] = []
    problems: list[str] = []
    settings = scope.settings
    with Http(settings, replace(scope.http.limits, attempts=ATTEMPTS)) as http:
        for place in settings.find_links:
            parts = urlsplit(place)
            folder = Path(unquote(parts.path) if parts.scheme == "file" else place)
            if parts.scheme in {"", "file"}:
                files += [path.name for path in folder.glob("*.whl")] if folder.is_dir() else []
            else:
                files += _page(http, place, problems)
        for place in settings.indexes:
            files += _page(http, f"{place.rstrip('/')}/{name}/", problems)
    return [file for file in files if file.startswith(f"{name}-")], problems


def _page(http: Http, url: str, problems: list[str]) -> list[str]:
    """Return the names of the files that a page lists; a fault of it is appended to ``problems``."""
    if urlsplit(url).scheme == "file":
        return []
    try:
        return [file.name for file in index.page(http, url)]
    except RemoteError as error:
        problems.append(f"{error}.")
        return []
