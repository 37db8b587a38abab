"""A real object store on this machine (moto), with something before it that may answer instead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import boto3
import pytest
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from fairmfu.ingest.core.paths import parse_path

NUMBERS = count()
"""Of buckets: all servers of a process have the same."""
Verdict = Callable[[str, str], str]

ERRORS = {
    "slow": (503, "SlowDown", "Please reduce your request rate."),
    "denied": (403, "AccessDenied", "Access Denied"),
}


class Between(ThreadingHTTPServer):
    """Stands before the store: notes what is asked, and may answer in its stead.

    verdict: of a method and a path: one of ERRORS, `cut` for half of the answer, `lost` for none
    though it was done, or nothing.
    """

    daemon_threads = True

    def __init__(self, store: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = store
        self.asked: list[str] = []
        self.verdict: Verdict = lambda _method, _path: ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def since(self) -> list[str]:
        """What was asked since this was last called."""
        asked, self.asked = self.asked, []
        return asked


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Between

    def pass_on(self) -> None:
        path = unquote(self.path)
        self.server.asked.append(f"{self.command} {path}")
        verdict = self.server.verdict(self.command, path)
        given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if verdict in ERRORS:
            status, code, words = ERRORS[verdict]
            text = f"<Error><Code>{code}</Code><Message>{words}</Message></Error>".encode()
            self.answer(status, [("Content-Type", "application/xml")], text)
            return
        upstream = HTTPConnection(*self.server.store)
        upstream.request(self.command, self.path, given or None, dict(self.headers.items()))
        told = upstream.getresponse()
        body = told.read()
        upstream.close()
        if verdict == "lost":
            self.close_connection = True
            return
        self.answer(told.status, told.getheaders(), body, cut=verdict == "cut")

    def answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        left_out = {"connection", "transfer-encoding"}
        if self.command != "HEAD":
            left_out.add("content-length")
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            if name.lower() not in left_out:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Silent."""


class Bucket:
    """A bucket of its own for each test."""

    def __init__(self, name: str, client: Any, between: Between) -> None:
        self.name, self.client, self.between = name, client, between

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes | str) -> Path:
        body = data.encode() if isinstance(data, str) else data
        self.client.put_object(Bucket=self.name, Key=key, Body=body)
        return self.at(key)

    def put_all(self, folder: Path, under: str) -> None:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            self.put(f"{under}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def held(self, under: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=under)
        return [one["Key"] for one in found.get("Contents", ())]

    def at(self, key: str = "") -> Path:
        return parse_path(f"{self.url}/{key}")


@contextmanager
def served(none: Path) -> Iterator[Callable[[], Bucket]]:
    """Makes buckets; the environment is what fairmfu finds the store by. none: no file."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else each request is put into words
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    between = Between((host, port))
    thread = Thread(target=between.serve_forever, args=(0.01,))
    thread.start()
    given = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": between.url,
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": str(none),
        "AWS_SHARED_CREDENTIALS_FILE": str(none),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        patch.setattr(S3FileSystem, "retries", 2)
        S3FileSystem.clear_instance_cache()
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")

        def bucket() -> Bucket:
            name = f"logs-{next(NUMBERS)}"
            client.create_bucket(Bucket=name)
            between.verdict = lambda _method, _path: ""
            return Bucket(name, client, between)

        yield bucket
        client.close()
        S3FileSystem.clear_instance_cache()
    between.shutdown()
    between.server_close()
    thread.join()
    server.stop()
