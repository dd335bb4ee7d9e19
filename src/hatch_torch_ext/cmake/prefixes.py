"""Prefix maps: folders of this machine are renamed in objects, so builds in different folders give the same bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hatch_torch_ext.values import Job


def mapped(job: Job) -> tuple[tuple[Path, str], ...]:
    """Return (folder, the name that replaces it); if several match, compilers take the last."""
    config, environment = job.config, job.environment
    pairs = [
        (environment.interpreter.include, "python/include"),
        (environment.prefix, "python"),
        (job.sdk.prefix, "torch"),
        (config.root, "."),
    ]
    if job.toolchain.cuda is not None:
        pairs.insert(0, (job.toolchain.cuda.root, "cuda"))
    if not config.source.is_relative_to(config.root):
        pairs.append((config.source, config.source.name))
    return (*pairs, (job.folder, "torch-ext"), (job.torch, "torch"))


def base_dir(job: Job) -> Path | None:
    """Return the folder below which ccache makes paths relative, so that other folders hit too; None without ccache."""
    cache = job.toolchain.cache
    if cache is None or not cache.ccache:
        return None
    common = Path(os.path.commonpath([job.config.root, job.config.source, job.folder]))
    return None if common == Path(common.root) else common


def relative_maps(job: Job) -> list[str]:
    """Return the maps of folders for paths that ccache made relative.

    Longer ones come last, since compilers take the last that matches. The entry's own folder, plain ``..``, would match
    every path that leads out of it.
    """
    base = base_dir(job)
    if base is None:
        return []
    below = [(old, new) for old, new in mapped(job) if old.is_relative_to(base) and old != job.folder]
    maps = [(os.path.relpath(old, job.build), new) for old, new in below]
    return [f"{old}={new}" for old, new in sorted(maps, key=lambda pair: (len(pair[0]), pair))]
