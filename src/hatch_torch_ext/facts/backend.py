"""What torch and a variant are built for: the CPU, or CUDA in one version. One value, with its notations and rules.

A backend that is added (ROCm, XPU) begins here; docs/contributing/recipes.md names the other rooms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHT: Mapping[str, float] = {"cpu": 1.0, "cuda": 10.0}
"""How long an entry of each kind takes to build beside the others, where nothing was measured yet."""

_TAG = r"cpu|cu[0-9]{2}[0-9]+"
_VERSION = r"[0-9]{2}\.[0-9]+"


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
        return f"cu{self.version.replace('.', '')}" if self.is_gpu else "cpu"

    @property
    def major_tag(self) -> str:
        """Return the same without the minor: ``cpu``, ``cu13``."""
        return f"cu{self.major}" if self.is_gpu else "cpu"

    @property
    def label(self) -> str:
        """Return its part of a variant's label: ``cpu``, ``cu13.0``."""
        return f"cu{self.version}" if self.is_gpu else "cpu"

    @property
    def words(self) -> str:
        """Return it as messages have it: ``CPU``, ``CUDA 13.0``."""
        return f"CUDA {self.version}" if self.is_gpu else "CPU"

    @property
    def weight(self) -> float:
        """Return how long an entry for it takes to build, an entry for the CPU being 1."""
        return WEIGHT[self.kind]

    def serves(self, torch: Backend) -> bool:
        """Return whether a variant for it runs with a torch for ``torch``: the same major, its minor or a newer one.

        The rule is NVIDIA's minor version compatibility; the loader has the same rule for users' machines. Whether a
        variant for the CPU is taken as a fallback on a GPU's torch is the caller's question.
        """
        return self.kind == torch.kind and self.major == torch.major and self.numbers <= torch.numbers
