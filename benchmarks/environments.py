"""The example's wheel in environments that few people have: its operator runs there, or the error gives the reason.

    python benchmarks/environments.py PYTHON [--write]

PYTHON is that of an environment with torch and torch-ext-example. Each line of the table is typed in a shell, in a
folder of its own; ``--write`` writes benchmarks/results/environments.md.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "environments.md"
USE = """
import torch, torch_ext_example as example
points = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
print(example.farthest_point_sampling(points, 3).tolist())
"""
PROGRAMS = {
    "use.py": USE,
    "embedded.py": f"import sys; del sys.argv; sys.executable = None\n{USE}",
    "processes.py": """
import multiprocessing, torch, torch_ext_example as example
def work(seed):
    points = torch.rand(50, 3, generator=torch.Generator().manual_seed(seed))
    return example.farthest_point_sampling(points, 3).tolist()
if __name__ == "__main__":
    torch.set_num_threads(1)
    for way in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(way).Pool(2) as pool:
            assert pool.map(work, [0, 0]) == [work(0)] * 2
    print("the same in all")
""",
    "threads.py": """
import threading, torch
found, barrier = [], threading.Barrier(16)
def work():
    barrier.wait()
    import torch_ext_example as example
    found.append(example.farthest_point_sampling(torch.rand(50, 3), 3).shape)
threads = [threading.Thread(target=work) for _ in range(16)]
[each.start() for each in threads], [each.join() for each in threads]
print(len(found), "threads")
""",
    "forks.py": """
import os, threading, torch_ext_example as example
going = True
def work():
    while going:
        example._variants.load()
threads = [threading.Thread(target=work) for _ in range(4)]
[each.start() for each in threads]
children = []
for _ in range(40):
    child = os.fork()
    if child == 0:
        example._variants.load()
        os._exit(0)
    children.append(child)
print(sum(os.waitpid(each, 0)[1] == 0 for each in children), "children")
going = False
""",
    "interpreters.py": """
import _xxsubinterpreters as interpreters
try:
    interpreters.run_string(interpreters.create(), "import torch_ext_example")
except BaseException as error:
    print(error)
""",
    "lazy.py": f"""
import importlib.util as util, sys
spec = util.find_spec("torch_ext_example")
spec.loader = util.LazyLoader(spec.loader)
module = sys.modules["torch_ext_example"] = util.module_from_spec(spec)
spec.loader.exec_module(module)
{USE}""",
    "nobody.py": """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])
""",
}
COPY = 'cp -r "$SITE/torch_ext_example" copy/'
ENVIRONMENTS = {
    "`PYTHONSAFEPATH=1`": "PYTHONSAFEPATH=1 $PY use.py",
    "`-I`": "$PY -I use.py && $PY -I -m torch_ext_example._variants --check",
    "`-OO`": "$PY -OO use.py && $PY -OO -m torch_ext_example._variants --check",
    "`-W error`": "$PY -W error use.py",
    "no variables at all": "env -i $PY use.py && env -i $PY -m torch_ext_example._variants --check",
    "`HOME` unset": "env -u HOME $PY use.py",
    "`PYTHONHASHSEED=0`, ASCII": "env -i LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 PYTHONHASHSEED=0 $PY use.py",
    "all streams closed": "$PY -c 'import torch_ext_example' <&- >&- 2>&-",
    "fork, spawn, forkserver": "$PY processes.py",
    "16 threads import at once": "$PY threads.py",
    "fork while threads call load()": "$PY forks.py",
    "a sub-interpreter": "$PY interpreters.py",
    "a lazy import": "$PY lazy.py",
    "embedded: no `sys.argv`, no `sys.executable`": "$PY embedded.py",
    "another user, who can write nothing": "env -i PYTHONPATH=$SITE $SYSTEM nobody.py $SYSTEM use.py",
    "a link to the package": 'mkdir linked && ln -s "$SITE/torch_ext_example" linked/ && PYTHONPATH=linked $PY use.py',
    "in a zip file": '(cd "$SITE" && zip -qr "$OLDPWD/it.zip" torch_ext_example) && PYTHONPATH=it.zip $PY use.py',
    "without sources (`.pyc` only)": (
        f"mkdir copy && {COPY} && find copy -name __pycache__ -exec rm -r {{}} + && $PY -m compileall -q -b copy && "
        "find copy -name '*.py' -delete && PYTHONPATH=copy $PY use.py && "
        "PYTHONPATH=copy $PY -m torch_ext_example._variants --check"
    ),
    "a folder that is not UTF-8": (
        f"mkdir copy && {COPY} && mv copy \"$(printf 'we\\377ird')\" && "
        "PYTHONPATH=\"$PWD/$(printf 'we\\377ird')\" $PY use.py"
    ),
    "a file system without `exec`": (
        "unshare -m sh -c 'mount -t tmpfs -o noexec none /mnt && cp -r $SITE/torch_ext_example /mnt/ && "
        "PYTHONPATH=/mnt $PY use.py'"
    ),
}


def main() -> None:
    """Print the table, and with ``--write`` write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    python = options.python.absolute()
    ask = "import sysconfig, sys, torch; print(sysconfig.get_path('purelib')); print(sys.version, torch.__version__)"
    site, versions = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.splitlines()
    lines = ["| environment | status | the last line that is printed |", "|---|---|---|"]
    for name, command in ENVIRONMENTS.items():
        with tempfile.TemporaryDirectory(prefix="environment-") as folder:
            Path(folder).chmod(0o755)
            for program, text in PROGRAMS.items():
                (Path(folder) / program).write_text(text)
            variables = f"export PY='{python}' SITE='{site}' SYSTEM=/usr/bin/python3\n"
            done = subprocess.run(
                ["/bin/bash", "-c", variables + command], cwd=folder, capture_output=True, check=False, timeout=300
            )
            text = (done.stdout + done.stderr).decode("utf-8", "replace").strip().replace(folder, "HERE")
        last = text.replace(site, "SITE").splitlines()[-1] if text else ""
        lines.append(f"| {name} | {done.returncode} | {last.replace('|', '/')} |")
        print(lines[-1], flush=True)
    if options.write:
        head = (
            "# The example in odd environments\n\n"
            f"Recorded on {datetime.now(timezone.utc):%Y-%m-%d} with\n`python benchmarks/environments.py PYTHON "
            f"--write` (Python and torch: {versions}).\n"
        )
        RESULTS.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
