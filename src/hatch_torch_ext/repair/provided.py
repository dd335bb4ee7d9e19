"""What torch's installation provides: by this torch's real files, and by pattern if these are unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hatch_torch_ext.facts import sonames

if TYPE_CHECKING:
    from collections.abc import Callable

    from hatch_torch_ext.facts.policy import Policy
    from hatch_torch_ext.values import Sdk

TORCH_FOLDER = "torch/lib"

Provider = Literal["torch", "cuda", "openmp", "python", "process", "desktop", "system"]

_KINDS: tuple[tuple[Provider, Callable[[str], bool]], ...] = (
    ("python", sonames.is_python),
    ("openmp", sonames.is_openmp),
    ("torch", sonames.is_torch),
    ("cuda", sonames.is_cuda),
    ("process", lambda name: sonames.process_runtime(name) is not None),
    ("desktop", sonames.is_desktop),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidedLibrary:
    """A library of torch's installation: its real name, and its folder below site-packages."""

    name: str
    folder: str | None


class Provided:
    """Tells, for one SDK and one policy, who provides a library, and under which name."""

    def __init__(self, sdk: Sdk, policy: Policy) -> None:
        self._policy = policy
        found = [(name, TORCH_FOLDER) for name in sdk.libraries] + list(sdk.nvidia_libraries)
        self._by_name = {name: ProvidedLibrary(name=name, folder=folder) for name, folder in reversed(found)}
        self._stems = {sonames.stem(name) for name in self._by_name}

    def provider(self, name: str) -> Provider | None:
        """Return who provides the library ``name``, or None if the wheel would have to."""
        plain = sonames.plain(name)
        for provider, provides in _KINDS:
            if provides(plain):
                return provider
        if self._policy.guarantees(plain):
            return "system"
        return "torch" if sonames.stem(plain) in self._stems else None

    def real(self, name: str) -> ProvidedLibrary | None:
        """Return the library of torch's installation for ``name``: the same stem and version, any hash."""
        if name in self._by_name:
            return self._by_name[name]
        plain = sonames.plain(name)
        return next((self._by_name[other] for other in sorted(self._by_name) if sonames.plain(other) == plain), None)

    def same_stem(self, name: str) -> tuple[str, ...]:
        """Return the versions of the library in torch's installation, sorted."""
        return tuple(sorted(other for other in self._by_name if sonames.stem(other) == sonames.stem(name)))
