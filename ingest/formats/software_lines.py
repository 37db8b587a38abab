"""Lines of libraries and drivers, the same below every framework."""

from __future__ import annotations

from typing import Final

from .spec import FactLine

SOFTWARE_LINES: Final = (
    FactLine(
        anchor="NCCL version ",
        regex=r"\bNCCL version (?P<nccl>\d[\d.]*(?:\+cuda\d+\.\d+)?)(?=\s|$)",
        example="NCCL version 2.27.5+cuda12.9",
        printed_by="NVIDIA/nccl/src/init.cc@v2.27.5-1 showVersion",
    ),
    FactLine(
        anchor="Driver Version: ",
        regex=r"\bDriver Version: (?P<driver>\d[\d.]*) +CUDA Version: ",
        example="| NVIDIA-SMI 535.104.12             Driver Version: 535.104.12   "
        "CUDA Version: 12.2     |",
        printed_by="nvidia-smi, its first line",
        composed=True,
    ),
)
