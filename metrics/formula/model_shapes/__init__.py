"""Model shapes: the dimensions for the formula and for counting parameters.

A shape comes from one of four sources, never from a guess:

    find_model(name)           a model known by name, or a framework's own flavour
    from_hugging_face(config)  a Hugging Face config.json, by its model_type
    from_megatron(arguments)   the arguments header of Megatron-DeepSpeed
    from_torchtitan(flavour)   torchtitan's `Building … with …ModelArgs(…)`, or its flavour alone

Errors:

    ShapeError (ValueError)
    ├── ImpossibleShapeError   an impossible dimension
    └── UnknownModelError      `find_model` has no model of this name

Their kinds are in metrics/formula/messages.py.
"""

from __future__ import annotations

from ..messages import ImpossibleShapeError, ShapeError, UnknownModelError
from .config import Config
from .hugging_face import from_hugging_face, model_types, other_parts, text_config
from .megatron_header import check_rank_params
from .models import (
    buildable_models,
    find_config,
    find_model,
    known_models,
    model_names,
    vision_model_names,
)
from .printed import from_megatron, from_torchtitan
from .shape import (
    Attention,
    FeedForward,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelShape,
    StateMixer,
    Weight,
    targeted_weights,
    with_params_total,
)

__all__ = [
    "Attention",
    "Config",
    "FeedForward",
    "ImpossibleShapeError",
    "LayerGroup",
    "LinearAttention",
    "Mixer",
    "MixtureOfExperts",
    "ModelShape",
    "ShapeError",
    "StateMixer",
    "UnknownModelError",
    "Weight",
    "buildable_models",
    "check_rank_params",
    "find_config",
    "find_model",
    "from_hugging_face",
    "from_megatron",
    "from_torchtitan",
    "known_models",
    "model_names",
    "model_types",
    "other_parts",
    "targeted_weights",
    "text_config",
    "vision_model_names",
    "with_params_total",
]
