#!/usr/bin/env python3
"""Loopback server of the download tests: prints its port, serves until its standard input closes.

GET /OWNER/REPO/resolve/main/NAME redirects to /blob/NAME and states the SHA-256 as the hub does (X-Linked-ETag). What NAME asks for:
  plain     the bytes, with ranges          norange   the bytes, ranges ignored      cut    half of them, then the connection ends (once; later whole)
  wrong     other bytes than stated         missing   404                            gated  401 without the token "secret"
  bare      no stated SHA-256               range416  416 for any range
GET /log answers with the requests so far, one line each: path, range, authorization.
"""
import hashlib, http.server, sys, threading

BYTES = bytes((i * 7 + i // 251) % 256 for i in range(200000))
LOG, CUT = [], []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = self.path.rsplit("/", 1)[-1]
        if self.path == "/log":
            return self.answer(200, "\n".join(LOG).encode())
        LOG.append(f"{self.path} {self.headers.get('Range', '-')} {self.headers.get('Authorization', '-')}")
        if name == "missing":
            return self.answer(404)
        if name == "gated" and self.headers.get("Authorization") != "Bearer secret":
            return self.answer(401)
        if "/resolve/" in self.path:
            state = {} if name == "bare" else {"X_Linked_ETag": '"%s"' % hashlib.sha256(BYTES).hexdigest()}
            return self.answer(302, Location="/blob/" + name, **state)
        return self.blob(name)

    def blob(self, name):
        body = BYTES[::-1] if name == "wrong" else BYTES
        asked = self.headers.get("Range")
        if name == "cut" and not CUT:
            CUT.append(1)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        if asked and name == "range416":
            return self.answer(416)
        if asked and name != "norange":
            start = int(asked.split("=")[1].split("-")[0])
            return self.answer(206, body[start:], Content_Range=f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.answer(200, body)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):  # a client that goes away is part of the tests
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
