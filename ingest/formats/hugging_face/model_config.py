"""config.json: the model as saved by Hugging Face's libraries, next to any log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..spec import CompanionFile


def _model_config(values: Mapping[str, Any]) -> dict[str, str]:
    return {"model_config": json.dumps(values)} if "model_type" in values else {}


MODEL_CONFIG: Final = CompanionFile(names=("config.json",), kind="JSON", read=_model_config)
