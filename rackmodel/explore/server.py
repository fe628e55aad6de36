"""The page's server: this computer alone, the standard library's http.server.

It listens on 127.0.0.1 and answers whoever knows the token of this start. A page of another site that resolves to this address (DNS
rebinding) has another Host; one that posts here has another Origin, no token, and may not read the answer, for nothing allows other
origins. It serves one page and answers questions of it; no path leads to a file. No other dependency is needed for one user of one page.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rackmodel.errors import InputError, OutputError
from rackmodel.explore.desk import Desk, DeskJob, Superseded
from rackmodel.explore.page import explore_page, page_policy
from rackmodel.explore.question import Shelf, read_question

ADDRESS = "127.0.0.1"
MOST_BYTES = 1 << 16
SIDES = ("a", "b")
JOBS = {"/ask": "answer", "/export": "export"}
TOKEN = "X-Rackmodel-Token"
PATIENCE_S = 15.0
"""How long a connection may take to say what it wants."""


class RefusedRequest(Exception):
    """A request that is not answered. status: of HTTP."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class PageServer(ThreadingHTTPServer):
    """The server of one start. port: 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, shelf: Shelf, port: int = 0) -> None:
        self.desks = {side: Desk() for side in SIDES}
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as problem:
            why = getattr(problem, "strerror", None) or problem
            raise OutputError(f"cannot listen: {why}", f"{ADDRESS}:{port}") from problem
        self.shelf, self.token = shelf, secrets.token_urlsafe(24)
        self.hosts = {f"{name}:{self.server_address[1]}" for name in (ADDRESS, "localhost")}
        self.page = explore_page(shelf, self.token).encode()

    @property
    def address(self) -> str:
        """What to open."""
        return f"http://{ADDRESS}:{self.server_address[1]}/?token={self.token}"

    def begin(self) -> None:
        """Start the processes that search, so that the first question need not wait for them."""
        for desk in self.desks.values():
            desk.warm()

    def answered(self, path: str, data: Any) -> tuple[int, dict[str, Any]]:
        """(status, plain data) of a question. Raises RefusedRequest, Superseded, InputError, OutputError."""
        if not isinstance(data, dict) or data.get("side") not in SIDES:
            raise InputError("want a side: a or b", path="question")
        question = read_question({key: value for key, value in data.items() if key != "side"}, self.shelf)
        return self.desks[data["side"]].ask(DeskJob(JOBS[path], question))

    def server_close(self) -> None:
        """End the searches too."""
        super().server_close()
        for desk in self.desks.values():
            desk.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that leaves before its answer is no fault."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = PATIENCE_S
    server_version, sys_version = "rackmodel", ""
    _read = False  # whether the body of the request was read

    def do_GET(self) -> None:
        """The page."""
        self._answer(self._page)

    def do_POST(self) -> None:
        """A question."""
        self._answer(self._question)

    def do_HEAD(self) -> None:
        """Nothing else is understood."""
        self._answer(self._other)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = do_HEAD

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not told: their address holds the token."""

    def _answer(self, make: Any) -> None:
        try:
            self._safe()
            status, body, kind = make()
        except RefusedRequest as refused:
            self._leave_nothing()
            status, body, kind = refused.status, _problem("refused", refused.words), "application/json"
        except Superseded:
            status, body, kind = 409, _problem("superseded", "a newer question came"), "application/json"
        except InputError as problem:
            every = [one.to_dict() for one in problem.problems]
            status, body, kind = 422, _problem("input", str(problem), every), "application/json"
        except OutputError as problem:
            status, body, kind = 500, _problem("computer", str(problem)), "application/json"
        self.send_response(status)
        for name, value in _headers(kind, len(body)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _leave_nothing(self) -> None:
        """Read what a refused request still sends, up to a megabyte: what lies unread when a connection is closed resets it."""
        said = self.headers.get("Content-Length", "")
        if self.command == "POST" and not self._read and said.isascii() and said.isdigit() and len(said) < 7:
            self.rfile.read(int(said))

    def _safe(self) -> None:
        """Raise RefusedRequest for what does not come from this server's own page or this computer's address bar."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise RefusedRequest(403, "this server answers to its own address alone")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{hosts[0].lower()}":
            raise RefusedRequest(403, "another site may ask nothing here")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise RefusedRequest(403, "another site may ask nothing here")

    def _known(self, token: str | None) -> None:
        if not hmac.compare_digest((token or "").encode(), self.server.token.encode()):
            raise RefusedRequest(403, "the token is not that of this start: open the address that `rackmodel explore` printed")

    def _page(self) -> tuple[int, bytes, str]:
        address = urlsplit(self.path)
        if address.path != "/":
            raise RefusedRequest(404, "there is one page here, /")
        self._known("".join(parse_qs(address.query).get("token", [])))
        return 200, self.server.page, "text/html"

    def _question(self) -> tuple[int, bytes, str]:
        self._known(self.headers.get(TOKEN))
        if self.path not in JOBS:
            raise RefusedRequest(404, f"want one of {', '.join(JOBS)}")
        if self.headers.get_content_type() != "application/json":
            raise RefusedRequest(415, "want JSON")
        try:
            data = json.loads(self._body())
        except (ValueError, RecursionError):
            raise RefusedRequest(400, "is no JSON") from None
        status, found = self.server.answered(self.path, data)
        return status, json.dumps(found, allow_nan=False, default=float).encode(), "application/json"

    def _body(self) -> bytes:
        said = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (said.isascii() and said.isdigit()):
            raise RefusedRequest(411, "want a Content-Length")
        if len(said) > 9 or int(said) > MOST_BYTES:
            raise RefusedRequest(413, f"a question has {MOST_BYTES} bytes at most")
        self._read = True
        return self.rfile.read(int(said))

    def _other(self) -> tuple[int, bytes, str]:
        raise RefusedRequest(405, "GET / for the page; its questions are POST")


def _headers(kind: str, size: int) -> Mapping[str, str]:
    return {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Length": str(size),
        "Content-Security-Policy": page_policy(),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
        "Connection": "close",
    }


def _problem(kind: str, text: str, problems: Any = ()) -> bytes:
    return json.dumps({"problem": {"kind": kind, "text": text, "problems": list(problems)}}).encode()
