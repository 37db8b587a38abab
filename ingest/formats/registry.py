"""All built-in formats: the single list to add a new format to."""

from __future__ import annotations

from typing import Final

from .deepspeed.chat import DEEPSPEED_CHAT, DEEPSPEED_CHAT_RLHF
from .deepspeed.config_file import ENGINE_CONFIG
from .deepspeed.engine import DEEPSPEED, DEEPSPEED_TIMERS, PROFILE_FILE
from .deepspeed.monitor import DEEPSPEED_CSV, DEEPSPEED_TENSORBOARD, STEPLESS_OUTPUTS
from .hugging_face.closing_dict import RESULTS_FILE
from .hugging_face.llamafactory import LLAMAFACTORY
from .hugging_face.mlperf import MLPERF, SYSTEM_FILES
from .hugging_face.model_cache import facts_from_model_cache
from .hugging_face.model_config import MODEL_CONFIG
from .hugging_face.ms_swift import MS_SWIFT
from .hugging_face.node_dicts import STEPLESS_DICTS
from .hugging_face.run_files import RUN_FILES
from .hugging_face.trainer import (
    HF_CONSOLE,
    HF_STATE,
    HF_TENSORBOARD,
    STEPLESS_RESULTS,
    STEPLESS_STATE,
)
from .job_scripts import JOB_SCRIPTS
from .megatron.console import (
    MEGATRON_DEEPSPEED,
    MEGATRON_LM,
    MINDSPEED_LLM,
    MINDSPEED_MM,
)
from .megatron.domino import DOMINO
from .megatron.gpt_neox import GPT_NEOX, GPT_NEOX_TENSORBOARD
from .megatron.tensorboard import MEGATRON_DEEPSPEED_TENSORBOARD, MEGATRON_LM_TENSORBOARD
from .megatron.terminal_copy import BARRED_STEP_LINE
from .platform_head import PLATFORM_RANK_TAG
from .power_samples import POWER_FILES
from .spec import CompanionFile, LogFormat
from .torchtitan.console import TORCHTITAN
from .torchtitan.job_config import JOB_CONFIGS
from .torchtitan.spans import TORCHTITAN_SPANS
from .torchtitan.tensorboard import TORCHTITAN_EVENTS
from .tqdm_bar import TQDM, has_only_bars
from .wandb_files import WANDB_FILES
from .xtuner.mmengine import DUMPED_CONFIGS, PYTHON_FILE_HINT, XTUNER
from .xtuner.scalars import XTUNER_SCALARS, XTUNER_TENSORBOARD
from .xtuner.v1 import RL_TRAINER_LINE, XTUNER_V1, XTUNER_V1_TENSORBOARD, XTUNER_V1_TRACKER

BUILT_IN_FORMATS: Final[tuple[LogFormat, ...]] = (
    TORCHTITAN,
    TORCHTITAN_EVENTS,
    TORCHTITAN_SPANS,
    XTUNER,
    XTUNER_SCALARS,
    XTUNER_TENSORBOARD,
    XTUNER_V1,
    XTUNER_V1_TRACKER,
    XTUNER_V1_TENSORBOARD,
    MEGATRON_DEEPSPEED,
    MEGATRON_DEEPSPEED_TENSORBOARD,
    MEGATRON_LM,
    MEGATRON_LM_TENSORBOARD,
    MINDSPEED_MM,
    MINDSPEED_LLM,
    GPT_NEOX,
    GPT_NEOX_TENSORBOARD,
    DOMINO,
    HF_CONSOLE,
    HF_STATE,
    HF_TENSORBOARD,
    LLAMAFACTORY,
    MS_SWIFT,
    MLPERF,
    DEEPSPEED,
    DEEPSPEED_TIMERS,
    DEEPSPEED_CHAT,
    DEEPSPEED_CHAT_RLHF,
    DEEPSPEED_TENSORBOARD,
    DEEPSPEED_CSV,
    TQDM,
)


COMPANION_FILES: Final[tuple[CompanionFile, ...]] = (
    MODEL_CONFIG,
    ENGINE_CONFIG,
    *JOB_CONFIGS,
    *DUMPED_CONFIGS,
    *RUN_FILES,
    *SYSTEM_FILES,
    *JOB_SCRIPTS,
    *WANDB_FILES,
    *POWER_FILES,
)
"""Files that state facts for logs in the same folder; the last one wins."""


CACHED_MODEL: Final = facts_from_model_cache
"""Returns the config of a model that facts only name, from a cache of this machine."""


HAS_ONLY_BARS: Final = has_only_bars
"""Returns whether lines without a known step have a training's progress bar."""

RANK_TAGS: Final = (*(f.rank_tag for f in BUILT_IN_FORMATS if f.rank_tag), PLATFORM_RANK_TAG)
"""Regexes of tags before lines, of any format, whose group `rank` is the global rank."""


BROKEN_BY_TERMINALS: Final = BARRED_STEP_LINE
"""Step lines that are joined again after a terminal's copy broke them at its width."""

PRINTED_BY_NODES: Final = STEPLESS_DICTS
"""Steps that several nodes print into one file; copies are dropped."""


STEPLESS_FILES: Final = (PROFILE_FILE, STEPLESS_STATE, STEPLESS_RESULTS, *STEPLESS_OUTPUTS)
"""First bytes of files without steps that frameworks write next to their logs, and kinds."""

RESULTS_FILES: Final = ((RESULTS_FILE, HF_STATE),)
"""First bytes of files with the closing figures of a run alone, and the format that reads them."""

FILE_HINTS: Final = {".py": PYTHON_FILE_HINT}
"""Hints for files that are no logs, by extension."""

UNREAD_TRAINERS: Final = (RL_TRAINER_LINE,)
"""Lines of known trainers that are not read, and the explanation for the user."""
