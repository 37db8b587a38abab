"""A program `fairmfu` whose commands run in this process: no start of Python with all libraries."""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from fairmfu.cli import main

CLIENT: Final = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    question = os.getcwd(), sys.argv[1:]
    asked.sendall(json.dumps(question).encode())
    asked.shutdown(socket.SHUT_WR)
    code, out, err = json.loads(asked.makefile().read())
for name, text in (("stdout", out), ("stderr", err)):
    getattr(sys, name).buffer.write(os.fsencode(text))
sys.exit(code)
"""


class _Command(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        folder, arguments = json.loads(self.rfile.read())
        before = Path.cwd()
        os.chdir(folder)
        try:
            done = CliRunner().invoke(main, arguments, prog_name="fairmfu")
        finally:
            os.chdir(before)
        ended_well = done.exception is None or isinstance(done.exception, SystemExit)
        error = done.stderr if ended_well else f"{done.stderr}\n{done.exception!r}"
        self.wfile.write(json.dumps((done.exit_code, done.stdout, error)).encode())


@contextmanager
def served_program(folder: Path) -> Iterator[str]:
    """The text of a program: what it is asked, this process does, in the caller's folder.

    The address of a socket has at most 107 bytes, so `folder` has to be short.
    """
    address = str(folder / "socket")
    with socketserver.UnixStreamServer(address, _Command) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield CLIENT.format(python=sys.executable, address=address)
        finally:
            server.shutdown()
            thread.join()
