"""The torch SDK without torch: headers of the wheel, link stubs, a small importable ``torch``; in the user's cache.

Nothing here depends on a table of torch releases: all facts are from the wheel.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hatch_torch_ext import resolve
from hatch_torch_ext import store as sdk_store
from hatch_torch_ext.base import resources
from hatch_torch_ext.base.errors import SdkError
from hatch_torch_ext.remote import settings as index_settings
from hatch_torch_ext.remote.http import Http, Limits
from hatch_torch_ext.resolve import ResolvedWheel, Scope
from hatch_torch_ext.sdk import exports, facts, fetch, nvidia
from hatch_torch_ext.sdk.environment import torch_include_dirs
from hatch_torch_ext.sdk.facts import LAYOUT, REAL, ThinRecord
from hatch_torch_ext.values import Sdk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hatch_torch_ext.config import Config
    from hatch_torch_ext.remote.archive import ArchiveMember
    from hatch_torch_ext.sdk.facts import TorchFacts
    from hatch_torch_ext.values import Entry, Environment

MEMBERS = re.compile(
    r"torch/(?:include/.+|share/cmake/.+|version\.py|lib/libc10(?:_cuda|_hip)?\.so)|torch-[^/]+\.dist-info/(?:METADATA|WHEEL)"
)
LIBRARY = re.compile(r"torch/lib/[^/]+\.so(?:\.[^/]+)?")


def acquire(
    entry: Entry,
    environment: Environment,
    config: Config,
    *,
    report: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Sdk:
    """Return the SDK of the torch release that ``entry`` requires, and fetch it if it is not in the user's cache.

    If torch is a CUDA build and the project's CMake files mention CUDA, headers of CUDA's libraries are fetched too;
    for another machine, so is that machine's part of the CUDA toolkit in ``environment``. Raises ``SdkError``.
    """
    environ = os.environ if environ is None else environ
    interpreter = environment.interpreter
    if interpreter.machine not in exports.MACHINES:
        raise SdkError(
            entry.name,
            f"thin torch SDKs are made for {' and '.join(exports.MACHINES)}, not for {interpreter.machine}: "
            'use `sdk = "environment"`',
        )
    settings = index_settings.read(entry, config, environ)
    store = sdk_store.open_usable(environ, config.root / "build" / "torch-ext" / "cache", report)
    with Http(settings, limits or Limits(), report) as http:
        scope = Scope(
            entry=entry,
            interpreter=interpreter,
            python=environment.python,
            root=config.root,
            store=store,
            http=http,
            report=report,
        )
        try:
            wheel = resolve.wheels(scope, [entry.torch_requirement], dependencies=False)[0]
            folder, marker = store.make(
                "torch", f"{wheel.key}-{LAYOUT}", lambda made: _fill(made, scope, wheel), ThinRecord.parse
            )
            record = ThinRecord.parse(marker)
            with_cuda = record.facts.cuda and not entry.is_cpu and nvidia.uses_cuda(config)
            cuda = nvidia.acquire(scope, record) if with_cuda else nvidia.NOTHING
            parts = nvidia.toolkit(scope, environment.site_packages) if with_cuda and environment.cross else ()
        except (fetch.FetchError, OSError) as error:
            raise SdkError(entry.name, fetch.sentence(error, scope)) from error
    return replace(_sdk(folder, record, cuda), toolkit_parts=parts)


def _sdk(folder: Path, record: ThinRecord, cuda: nvidia.CudaParts) -> Sdk:
    prefix = folder / "torch"
    found = record.facts
    return Sdk(
        kind="thin",
        version=found.version,
        backend=found.backend,
        foreign=found.foreign,
        cxx11_abi=found.cxx11_abi,
        cxx_standard=found.cxx_standard,
        prefix=prefix,
        library_dir=prefix / "lib",
        include_dirs=torch_include_dirs(prefix),
        toolkit_include_dirs=cuda.include_dirs,
        libraries=tuple(sorted(Path(member.name).name for member in record.libraries)),
        nvidia_libraries=cuda.libraries,
        gpu_runtime=cuda.runtime,
        python_path=(folder,),
        left_out=tuple(sorted({*record.modules, *_required_modules(record)})),
        wheel_sha256=record.wheel.sha256,
    )


def _fill(made: Path, scope: Scope, wheel: ResolvedWheel) -> dict[str, object]:
    """Fill the folder ``made`` from ``wheel``, and return the content of its marker."""
    began = time.monotonic()
    fetched = fetch.read(
        scope,
        wheel,
        MEMBERS,
        with_whole=lambda source, members: exports.save_all(
            scope.store, f"{wheel.key}-{LAYOUT}", source, _libraries(members)
        ),
    )
    libraries = _libraries(fetched.members)
    if not any(member.name == "torch/lib/libtorch_cpu.so" for member in libraries):
        raise SdkError(
            scope.entry.name,
            f"{wheel.name} {wheel.version} is not a Linux build of torch: its wheel has no torch/lib/libtorch_cpu.so. "
            "Check `index-url`",
        )
    for member, data in fetched.contents:
        name = member.name
        scope.store.put(data, made, f"{REAL}/{name.rpartition('/')[2]}" if LIBRARY.fullmatch(name) else name)
    try:
        found = facts.read(made / "torch", libc10=made / REAL / "libc10.so")
    except facts.FactError as error:
        raise SdkError(
            scope.entry.name,
            f"the wheel of torch {wheel.version} is not usable to compile against: {error}. Check `index-url`",
        ) from error
    for member in libraries:
        soname = Path(member.name).name
        scope.store.put(exports.stub(soname, scope.interpreter.machine), made, f"torch/lib/{soname}")
    for name, text in facade_files(found):
        scope.store.put(text, made, f"torch/{name}")
    size = f" of {wheel.size / 1e6:.0f}" if wheel.size else ""
    scope.report(
        f"torch {found.version}: {fetched.received / 1e6:.1f}{size} MB fetched in {time.monotonic() - began:.1f} s"
        if fetched.received
        else f"torch {found.version}: read from {wheel.path} in {time.monotonic() - began:.1f} s"
    )
    return ThinRecord(
        facts=found, wheel=wheel, libraries=libraries, requires=_requires(made), modules=_modules(fetched.members)
    ).marker()


def _modules(members: tuple[ArchiveMember, ...]) -> tuple[str, ...]:
    """Return the packages in the wheel except torch."""
    names = {
        name for name, _, rest in (member.name.partition("/") for member in members) if rest and name.isidentifier()
    }
    return tuple(sorted(names - {"torch"}))


def _required_modules(record: ThinRecord) -> tuple[str, ...]:
    """Return the names to import of torch's requirements, by the usual relation to the names of distributions."""
    names = set()
    for line in record.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # a thin SDK installs none of them
            continue
        if requirement.marker is None or "extra" not in str(requirement.marker):
            name = canonicalize_name(requirement.name).replace("-", "_")
            names.add(name.partition("_")[0] if name.startswith(("nvidia_", "cuda_")) else name)
    return tuple(sorted(names))


def _libraries(members: tuple[ArchiveMember, ...]) -> tuple[ArchiveMember, ...]:
    return tuple(member for member in members if LIBRARY.fullmatch(member.name))


def _requires(made: Path) -> tuple[str, ...]:
    metadata: Iterable[Path] = made.glob("torch-*.dist-info/METADATA")
    lines: list[str] = []
    for file in metadata:
        text = file.read_text(encoding="utf-8", errors="replace")
        lines += HeaderParser().parsestr(text).get_all("Requires-Dist", [])
    return tuple(lines)


SOURCE = resources.FOLDER / "facade" / "torch"
LITERAL = "FACTS: Dict[str, bool] = "
WHEELS_OWN = "version.py"


def facade_files(found: TorchFacts) -> Iterator[tuple[str, bytes]]:
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
