"""A small web server on 127.0.0.1 that can break off, send a page, or refuse ranges."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """What the server sends, how it misbehaves, and what it was asked.

    Attributes:
        content: the file.
        break_after: bytes after which each of the first ``breaks`` answers ends, though it announced more.
        breaks: how many answers break off.
        ranges: whether a Range header is obeyed.
        status: an error to answer with instead.
        asked: the Range header of every request, nothing where it had none.
    """

    def __init__(self, content, *, break_after=0, breaks=0, ranges=True, status=None):
        self.content, self.break_after, self.breaks = content, break_after, breaks
        self.ranges, self.status, self.asked = ranges, status, []


@contextlib.contextmanager
def serve(site):
    """Yield the address of ``site``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/cifar-10-python.tar.gz"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            site.asked.append(wanted)
            if site.status:
                return self.send_error(site.status)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
            if start >= len(site.content) > 0:
                return self.send_error(416)
            rest = site.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            if site.breaks:
                site.breaks -= 1
                rest = rest[: site.break_after]
            self.wfile.write(rest)
            return None

        def log_message(self, *words):
            pass

    return Handler
