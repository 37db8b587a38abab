"""A stand-in: xtuner imports torchvision for its image data sets, which these text-only runs never touch."""

from . import transforms  # noqa: F401

__version__ = "0.0.0+stub"
