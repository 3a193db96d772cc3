"""A web server on this machine that misbehaves as told: drops connections, lies about lengths, has no ranges."""
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Resource:
    """What lies at a path, and how it is served.

    drop_after: connections end after so many bytes of body (each of the first `drops` requests)
    ranges: whether Range is honoured; etag: its validator (None: none); status: answered instead, `failures` times
    declared: Content-Length to claim (None: the true one; 0: none at all); location: redirects there
    pause: seconds between blocks of 16 kB
    """

    def __init__(self, body=b"", *, content_type="application/octet-stream", ranges=True, etag='"v1"', drops=0, drop_after=0,
                 status=200, failures=10**9, declared=None, location=None, pause=0, lie_range=False):
        self.body, self.content_type, self.ranges, self.etag = body, content_type, ranges, etag
        self.drops, self.drop_after, self.status, self.failures = drops, drop_after, status, failures
        self.declared, self.location, self.pause, self.lie_range = declared, location, pause, lie_range


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):  # noqa: N802, the name is the library's
        server = self.server
        path = self.path.split("?")[0]
        resource = server.resources.get(path)
        server.requests.append((path, self.headers.get("Range"), self.headers.get("If-Range"), self.headers.get("Accept")))
        self.close_connection = True
        if resource is None:
            self.respond(404, b"no such page")
        elif resource.location:
            self.send_response(302)
            self.send_header("Location", resource.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif resource.status != 200 and resource.failures > 0:
            resource.failures -= 1
            self.respond(resource.status, b"failing as told")
        else:
            self.send_resource(resource)

    def respond(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_resource(self, resource):
        start = 0
        wanted = self.headers.get("Range")
        if_range = self.headers.get("If-Range")
        if wanted and resource.ranges and (if_range is None or if_range == resource.etag):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(resource.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(resource.body)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            first = start + 1 if resource.lie_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(resource.body) - 1}/{len(resource.body)}")
        else:
            self.send_response(200)
        body = resource.body[start:]
        if resource.declared != 0:
            self.send_header("Content-Length", str(len(body) if resource.declared is None else resource.declared))
        if resource.etag:
            self.send_header("ETag", resource.etag)
        self.send_header("Content-Type", resource.content_type)
        self.end_headers()
        if resource.drops > 0:
            resource.drops -= 1
            body = body[:resource.drop_after]
        try:
            for at in range(0, len(body), 16384):
                self.wfile.write(body[at:at + 16384])
                if resource.pause:
                    self.wfile.flush()
                    time.sleep(resource.pause)
        except OSError:  # the client has left
            pass


class FileServer:
    def __init__(self):
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.resources = self.resources = {}
        self.http.requests = self.requests = []
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
