"""What torch and a variant are built for: the CPU, or CUDA in one version. One value, with its notations and rules.

A backend that is added (ROCm, XPU) begins here, with a row of ``_KINDS``; docs/contributing/recipes.md names the other
rooms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "cuda"
"""The variable of the matrix whose value names a backend, of any kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who tells an installer of wheel variants (PEP 817) what the machine has, and the names of what it tells.

    ``driver`` is the property for the lowest version that the driver supports, ``cards`` that for architectures.
    """

    namespace: str
    plugin: str
    package: str
    driver: str
    cards: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    toolkit: str
    """As messages have it: ``CUDA``."""
    tag: str
    """What the notations begin with."""
    weight: float
    """How long an entry takes to build beside one for the CPU, where nothing was measured yet."""
    memory: int
    """Bytes that one compile job takes, where nothing was measured yet."""
    compiler: str = ""
    """The toolkit's compiler, as it is on ``PATH``."""
    purl: str = ""
    """The toolkit as a package URL, without the version."""
    provider: Provider | None = None
    kernel_requires: tuple[str, ...] = ()
    """Distributions that only a kernel of the Hub for this backend may require."""


_KINDS: Mapping[str, _Kind] = {
    # 1.56 GB: g++ 12, a file that includes all of torch (torch/extension.h, 2.13; library.h: 0.6)
    "cpu": _Kind(toolkit="CPU", tag="cpu", weight=1.0, memory=1_600_000_000),
    "cuda": _Kind(
        toolkit="CUDA",
        tag="cu",
        weight=10.0,
        memory=3_000_000_000,
        compiler="nvcc",
        purl="pkg:generic/nvidia-cuda",
        provider=Provider(
            namespace="nvidia",
            plugin="nvidia_variant_provider.plugin:NvidiaVariantPlugin",
            package="nvidia-variant-provider",
            driver="cuda_version_lower_bound",
            cards="sm_arch",
        ),
        kernel_requires=("nvidia-cutlass-dsl",),
    ),
}

_TAG = r"cpu|cu[0-9]{2}[0-9]+"
_VERSION = r"[0-9]{2}\.[0-9]+"
_LOCAL = r"cpu|cu[0-9]+|rocm[0-9.]+|xpu"
"""torch's own builds by their local versions, also of kinds that no variant is built for."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of device, and the version of its toolkit (``13.0``; empty for the CPU)."""

    kind: Literal["cpu", "cuda"]
    version: str = ""

    @classmethod
    def parse(cls, text: str) -> Backend:
        """Return the backend that ``text`` names: ``cpu``, ``cu130`` or ``13.0``. Raises ``ValueError``."""
        if text == "cpu":
            return cls("cpu")
        if re.fullmatch(_VERSION, text):
            return cls("cuda", text)
        if re.fullmatch(_TAG, text):
            return cls("cuda", f"{text[2:4]}.{text[4:]}")
        raise ValueError(f"`{text}` is neither `cpu` nor a CUDA version such as `cu130` or `13.0`")

    @classmethod
    def of_cuda(cls, version: str | None) -> Backend:
        """Return the backend for the value of ``torch.version.cuda``: None there is a build for the CPU."""
        return cls("cuda", version) if version else cls("cpu")

    @classmethod
    def of_local(cls, text: str) -> Backend | None:
        """Return the backend that a local version in ``text`` names (``2.8.0+cu128``, ``==2.8.*+cpu``), or None."""
        found = re.search(rf"\+({_TAG})(?![0-9])", text)
        return cls.parse(found[1]) if found else None

    @classmethod
    def of_torch(cls, values: Mapping[str, str | None]) -> Backend:
        """Return the backend that a torch's ``version.py`` states, as name -> value; its minors are enough."""
        found = re.match(r"[0-9]{1,3}\.[0-9]{1,9}", values.get("cuda") or "")
        return cls.of_cuda(found[0] if found else None)

    @property
    def is_gpu(self) -> bool:
        """Return whether its variants need a GPU's toolkit to be built."""
        return self.kind != "cpu"

    @property
    def numbers(self) -> tuple[int, int]:
        """Return (major, minor) of the version, for comparisons; (0, 0) for the CPU."""
        major, _, minor = self.version.partition(".")
        return int(major or 0), int(minor or 0)

    @property
    def major(self) -> int:
        """Return the major version, 0 for the CPU."""
        return self.numbers[0]

    @property
    def name(self) -> str:
        """Return it as a variable of the matrix has it in full: ``cpu``, ``13.0``."""
        return self.version or "cpu"

    @property
    def tag(self) -> str:
        """Return the notation of torch's indexes and local versions: ``cpu``, ``cu130``."""
        return self._of_kind.tag + self.version.replace(".", "")

    @property
    def major_tag(self) -> str:
        """Return the same without the minor: ``cpu``, ``cu13``."""
        return self._of_kind.tag + (str(self.major) if self.is_gpu else "")

    @property
    def label(self) -> str:
        """Return its part of a variant's label: ``cpu``, ``cu13.0``."""
        return self._of_kind.tag + self.version

    @property
    def words(self) -> str:
        """Return it as messages have it: ``CPU``, ``CUDA 13.0``."""
        return f"{self.toolkit} {self.version}".rstrip()

    @property
    def toolkit(self) -> str:
        """Return the same without the version: ``CPU``, ``CUDA``."""
        return self._of_kind.toolkit

    @property
    def weight(self) -> float:
        """Return how long an entry for it takes to build, an entry for the CPU being 1."""
        return self._of_kind.weight

    @property
    def memory(self) -> int:
        """Return the estimated memory of a compile job in bytes, while nothing is known of the sources."""
        return self._of_kind.memory

    @property
    def purl(self) -> str:
        """Return the toolkit as a package URL; empty for the CPU."""
        return f"{self._of_kind.purl}@{self.version}" if self.is_gpu else ""

    @property
    def provider(self) -> Provider | None:
        """Return who tells installers of wheel variants what a machine has; None for the CPU."""
        return self._of_kind.provider

    @property
    def kernel_requires(self) -> tuple[str, ...]:
        """Return the distributions that only a kernel of the Hub for it may require."""
        return self._of_kind.kernel_requires

    @property
    def fields(self) -> dict[str, str | None]:
        """Return its fields in a variant and in the data of the loader, where the CPU has no version."""
        return {"cuda": self.version or None}

    @property
    def _of_kind(self) -> _Kind:
        return _KINDS[self.kind]

    def serves(self, torch: Backend) -> bool:
        """Return whether a variant for it runs with a torch for ``torch``: the same major, its minor or a newer one.

        The rule is NVIDIA's minor version compatibility; the loader has the same rule for users' machines. Whether a
        variant for the CPU is taken as a fallback on a GPU's torch is the caller's question.
        """
        return self.kind == torch.kind and self.major == torch.major and self.numbers <= torch.numbers


def compilers() -> tuple[str, ...]:
    """Return the compilers of all toolkits, as they are on ``PATH``."""
    return tuple(each.compiler for each in _KINDS.values() if each.compiler)


def local_tag(text: str) -> str:
    """Return the tag of a build of torch's own that a version in ``text`` names (``==2.8.*+rocm6.3``), or ""."""
    found = re.search(rf"\+({_LOCAL})\b", text)
    return found[1] if found else ""
