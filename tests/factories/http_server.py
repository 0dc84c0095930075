# SPDX-License-Identifier: Apache-2.0
"""Real HTTP servers: one of a file that misbehaves on demand, and one of a folder."""

import functools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Server:
    """Serves one file at `url`, with the faults of its attributes; `asked` has each request's Range header."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.ranges = True  # answers Range with 206
        self.chunked = False  # no Content-Length
        self.silent_length = False  # neither Content-Length nor chunks
        self.statuses: list[int] = []  # error statuses to answer before serving
        self.cuts: list[int] = []  # closes the n-th connection after this number of bytes
        self.stall_after: int | None = None  # sends this number of bytes, then waits for `go`
        self.go = threading.Event()
        self.asked: list[str | None] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.asked.append(asked)
        if self.statuses:
            handler.send_error(self.statuses.pop(0))
            return
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        first, last = 0, len(self.content)
        partial = bool(span and self.ranges)
        if span and partial:
            first = int(span[1])
            last = min(int(span[2]) + 1, last) if span[2] else last
            if first >= len(self.content):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{last}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
        handler.send_response(206 if partial else 200)
        if partial:
            handler.send_header("Content-Range", f"bytes {first}-{last - 1}/{len(self.content)}")
        if self.chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        elif not self.silent_length:
            handler.send_header("Content-Length", str(last - first))
        handler.end_headers()
        self.send(handler, self.content[first:last])

    def send(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if self.stall_after is not None:
            handler.wfile.write(body[: self.stall_after])
            handler.wfile.flush()
            self.go.wait()
            body = body[self.stall_after :]
        cut = self.cuts.pop(0) if self.cuts else None
        if self.chunked:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body) if cut is None else b"%x\r\n" % len(body))
            handler.wfile.write(b"0\r\n\r\n" if cut is None else body[:cut])
        else:
            handler.wfile.write(body[:cut])


@contextmanager
def serving(content: bytes) -> Iterator[Server]:
    """Serve *content* on a free port of 127.0.0.1."""
    state = Server(content)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.close_connection = True
            with suppress(BrokenPipeError, ConnectionResetError):  # the client was killed or closed the connection
                state.answer(self)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}/data.fq.gz"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.go.set()
        server.shutdown()
        server.server_close()


@contextmanager
def folder(path: Path) -> Iterator[str]:
    """Serve the files of a folder; yields the address without a slash at its end."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
