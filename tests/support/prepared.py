"""A folder that many tests begin with, made once: each has its own copy, at the same place.

At the same place, for a store knows its sources by their whole paths.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def emptied(folder: Path) -> Path:
    """The folder without what a test before left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def prepare(folder: Path, name: str, make: Callable[[], object]) -> None:
    """Fill the emptied folder with what `make` puts there; it is called once for each name."""
    saved = folder.with_name(f"{folder.name}-{name}")
    if saved.exists():
        shutil.copytree(saved, folder, dirs_exist_ok=True)
    else:
        make()
        shutil.copytree(folder, saved)
