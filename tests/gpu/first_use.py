"""A CUDA build at first use, on a machine with a GPU and an nvcc of torch's CUDA major: run there by hand.

    python tests/gpu/first_use.py WHEEL

WHEEL is the example's, built with ``fallback = "build"`` and ``HATCH_TORCH_EXT_ONLY`` such that no variant fits the
torch of this Python (``matrix.2.8`` for a torch 2.13). The Python has that torch (a CUDA build), pytest's requirements
of checks.py, hatch-torch-ext, and not the example. Ends with an error at the first thing that is not as it must be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGE = "torch_ext_example"
FACTS = (
    "import json, torch; from torch_ext_example import _variants; choice = _variants.load(); "
    "print(json.dumps([choice.label, sorted(choice.variant['archs']), torch.version.cuda, "
    "sorted({'%d.%d' % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())})]))"
)


def run(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run this Python; its stderr is seen."""
    command = [sys.executable, *map(str, arguments)]
    environ = {**os.environ, **changes}
    return subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)


def main() -> int:
    """Run every step."""
    with tempfile.TemporaryDirectory() as folder:
        site, cache = Path(folder, "site"), Path(folder, "cache")
        install = run("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, sys.argv[1])
        assert install.returncode == 0
        changes = {"PYTHONPATH": str(site), "TORCH_EXT_BUILD_CACHE": str(cache)}
        assert run("-c", f"import {PACKAGE}", **changes).returncode == 1, "a variant fits: take another wheel"
        began = time.monotonic()
        assert run("-m", f"{PACKAGE}._variants", "--build", **changes).returncode == 0
        sys.stdout.write(f"built in {time.monotonic() - began:.0f} s\n")
        label, archs, cuda, capabilities = json.loads(run("-c", FACTS, **changes).stdout)
        sys.stdout.write(f"{label}, for {', '.join(archs)}\n")
        assert f"_cu{cuda}_" in label, label
        assert archs == capabilities, (archs, capabilities)
        check = Path(__file__).with_name("check.py")
        assert run(check, **changes).returncode == 0
        # Architectures that the user asks for are another build; an nvcc that is not there is told.
        asked = run("-c", FACTS, **changes, TORCH_CUDA_ARCH_LIST="9.0+PTX", TORCH_EXT_BUILD="1")
        assert json.loads(asked.stdout)[1] == ["9.0", "9.0+PTX"]
        without = run("-c", f"import {PACKAGE}", **changes, CUDA_HOME="/nowhere", TORCH_EXT_BUILD="1")
        sys.stdout.write(f"with CUDA_HOME=/nowhere: status {without.returncode} (0 where another nvcc is found)\n")
        doctor = run("-m", "hatch_torch_ext", "doctor", "--python", sys.executable, **changes)
        sys.stdout.write(doctor.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
