"""Memory that was let go of: what stays with the process, what goes back to the system."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fairmfu.ingest.core.allocator import GLIBC_ALLOCATOR, POLARS_ALLOCATOR
from tests.support.folders import ROOT

BEGIN = """
import os, sys
from fairmfu.ingest.core.allocator import limit_allocators
limit_allocators()
"""
THREADS = """
import ctypes
from threading import Barrier, Thread
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = Barrier(4)
def take():
    together.wait()  # so that there are as many threads at once
    libc.malloc(1000)
    together.wait()
threads = [Thread(target=take) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""
BLOCKS = """
import ctypes, resource
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def taken():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [ctypes.c_void_p(libc.malloc(12 << 20)) for _ in range(3)]
    for block in blocks: libc.memset(block, 1, 12 << 20)
    for block in blocks: libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print([taken() for _ in range(3)][-1] * resource.getpagesize() >> 20)
"""


def said(code: str, *arguments: object, **environment: str) -> str:
    """What another process prints; it knows none of what the tests have set."""
    names = {*GLIBC_ALLOCATOR, *POLARS_ALLOCATOR}
    env = {name: text for name, text in os.environ.items() if name not in names} | environment
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(  # noqa: S603 - our own code
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return ran.stdout


of_gnu = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="another C library than GNU's"
)


@of_gnu
def test_threads_take_their_memory_from_one_place(tmp_path: Path) -> None:
    told = tmp_path / "malloc.xml"

    def places(code: str, **environment: str) -> int:
        said(code + THREADS, told, **environment)
        return told.read_text(encoding="utf-8").count("<heap nr=")

    assert places(BEGIN) == 1
    assert places("import sys") > 1
    assert places(BEGIN, MALLOC_ARENA_MAX="3") == 3


@of_gnu
def test_what_a_block_took_is_there_for_the_next_one_unless_the_user_has_it_otherwise() -> None:
    assert int(said(BEGIN + BLOCKS)) == 0
    assert int(said(BLOCKS)) >= 12
    assert int(said(BEGIN + BLOCKS, MALLOC_TRIM_THRESHOLD_="65536")) >= 12


@of_gnu
def test_processes_that_are_started_have_it_too() -> None:
    code = BEGIN + f"import subprocess; subprocess.run([sys.executable, '-c', {BLOCKS!r}])"
    assert int(said(code)) == 0


def test_polars_keeps_little_of_what_it_does_not_use_unless_the_user_has_it_otherwise() -> None:
    code = BEGIN + "print(os.environ['_RJEM_MALLOC_CONF'], 'polars' in sys.modules)"
    assert said(code).endswith("muzzy_decay_ms:0,narenas:4 False\n")
    assert said(code, _RJEM_MALLOC_CONF="narenas:2") == "narenas:2 False\n"


@pytest.mark.parametrize("command", ["ingest", "nightly"])
def test_commands_that_read_logs_ask_for_it_before_they_import_polars(command: str) -> None:
    code = f"""
import fairmfu.ingest.core.allocator, sys
from fairmfu.cli import main
def asked(): sys.exit(str("polars" in sys.modules))
fairmfu.ingest.core.allocator.limit_allocators = asked
try:
    main(["{command}", "no.log"])
except SystemExit as ended:
    print(ended.code)
"""
    assert said(code) == "False\n"
