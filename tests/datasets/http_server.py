"""HTTP server on 127.0.0.1 that can interrupt responses, return errors, or ignore ranges."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """Content and behaviour of the server, and the requests it received.

    Attributes:
        content: The file.
        break_after: Number of bytes after which each of the first ``breaks`` responses ends early.
        breaks: Number of interrupted responses.
        ranges: Whether Range headers are respected.
        status: HTTP error to return instead.
        state_length: Whether responses have a Content-Length.
        requested: Range header of every request; None if it had none.
    """

    def __init__(self, content, *, break_after=0, breaks=0, ranges=True, status=None, state_length=True):
        self.content, self.break_after, self.breaks = content, break_after, breaks
        self.ranges, self.status, self.requested, self.state_length = ranges, status, [], state_length


@contextlib.contextmanager
def serve(site):
    """Context manager that serves ``site`` and yields its address."""
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
            site.requested.append(wanted)
            if site.status:
                return self.send_error(site.status)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
            if start >= len(site.content) > 0:
                return self.send_error(416)
            rest = site.content[start:]
            self.send_response(206 if start else 200)
            if site.state_length:
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
