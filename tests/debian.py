"""Packages of Debian, unpacked into folders; nothing is installed, and the machine's own package lists stay."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class UnavailableError(Exception):
    """A package cannot be fetched here; the text is the reason."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program and return its output."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise UnavailableError(f"{Path(command[0]).name} failed: {last}")
    return done.stdout + done.stderr


def source() -> tuple[str, str]:
    """Return Debian's mirror and keyring, as this machine uses them."""
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        text = path.read_text() if path.is_file() else ""
        mirror = re.search(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(https?://\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
        if mirror:
            keyring = re.search(r"[Ss]igned-[Bb]y[:=]\s*(/\S+?)\]?(?:\s|$)", text)
            return mirror[1], keyring[1] if keyring else "/usr/share/keyrings/debian-archive-keyring.gpg"
    raise UnavailableError("this machine has no Debian mirror among its package sources")


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The packages of a release (``bookworm``) and component (``main``) for one architecture; ``work`` is temporary."""

    work: Path
    release: str
    component: str
    architecture: str | None = None

    def unpack(self, names: Sequence[str], target: Path) -> None:
        """Fetch the packages ``names`` and unpack them into ``target``."""
        for tool in ("apt-get", "dpkg"):
            if shutil.which(tool) is None:
                raise UnavailableError(f"{tool} is not here: Debian's packages are out of reach")
        mirror, keyring = source()
        for name in ("lists/partial", "cache/archives/partial", "debs"):
            (self.work / name).mkdir(parents=True)
        sources, options = self.work / "sources.list", self._options()
        sources.write_text(f"deb [signed-by={keyring}] {mirror} {self.release} {self.component}\n")
        try:
            unknown_key = "NO_PUBKEY" in run("apt-get", *options, "update")
        except UnavailableError:
            unknown_key = True
        if unknown_key:  # the keyring may be older than the release; the packages only serve a test
            sources.write_text(f"deb [trusted=yes] {mirror} {self.release} {self.component}\n")
            run("apt-get", *options, "update")
        run("apt-get", *options, "download", *names, cwd=self.work / "debs")
        packages = sorted((self.work / "debs").glob("*.deb"))
        if len(packages) < len(names):
            raise UnavailableError(f"{mirror} lacks some of {', '.join(names)} in {self.release} {self.component}")
        for package in packages:
            run("dpkg", "-x", package, target)

    def _options(self) -> list[str]:
        settings = {
            "Dir::Etc::sourcelist": f"{self.work}/sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::Lists": f"{self.work}/lists",
            "Dir::Cache": f"{self.work}/cache",
            "APT::Sandbox::User": "root",
        }
        if self.architecture is not None:
            settings |= {"APT::Architecture": self.architecture, "APT::Architectures": self.architecture}
        return ["-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
