"""config.json of a named model, from the local cache of Hugging Face's libraries.

    ~/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/COMMIT/config.json

Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from ..launch_view import Fact

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024

REPOSITORY: Final = re.compile(r"(?P<owner>\w[\w.-]{0,95})/(?P<name>\w[\w.-]{0,95})")
"""Name of a model on Hugging Face; a longer path is a folder."""


def facts_from_model_cache(facts: Sequence[Fact]) -> list[Fact]:
    """Return the cached config of the model that the last of these facts names.

    Empty if a fact already describes the model.
    """
    names = [fact["value"] for fact in facts if fact["name"] == "model"]
    described = any(fact["name"].endswith(("_config", "_arguments")) for fact in facts)
    match = REPOSITORY.fullmatch(str(names[-1])) if names and not described else None
    if match is None:
        return []
    folder = f"models--{match['owner']}--{match['name']}"
    config = _cached_config(_hub(), folder)
    origin = f"companion:{folder}/config.json"
    return [
        {"name": "model_config", "value": text, "origin": origin, "line": None} for text in config
    ]


def _hub() -> str:
    """Return the folder of the cache, by the variables of huggingface_hub."""
    if hub := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return hub
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")  # noqa: PTH118 - text
    home = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")  # noqa: PTH118
    return os.path.join(os.path.expanduser(home), "hub")  # noqa: PTH111, PTH118 - no home, no error


@lru_cache(maxsize=256)
def _cached_config(hub: str, folder: str) -> tuple[str, ...]:
    """Return the config.json of the main revision, or of the only one, as text."""
    with suppress(OSError, ValueError, RecursionError):
        for path in _snapshots(Path(hub) / folder):
            if path.stat().st_size <= MAX_CONFIG_BYTES:
                values = json.loads(path.read_text(encoding="utf-8"))
                if isinstance(values, dict) and "model_type" in values:
                    return (json.dumps(values),)
    return ()


def _snapshots(repository: Path) -> Iterator[Path]:
    """Yield at most one config.json."""
    snapshots = repository / "snapshots"
    main = repository / "refs" / "main"
    if main.is_file():
        commit = main.read_text(encoding="utf-8")[:64].strip()
        if re.fullmatch(r"\w+", commit):
            yield snapshots / commit / "config.json"
        return
    found = [*snapshots.glob("*/config.json")]
    if len(found) == 1:
        yield found[0]
