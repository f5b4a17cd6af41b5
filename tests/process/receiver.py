"""A receiver of musterd's webhooks (docs/how-to/webhook.md): a real HTTP server in this process."""

import contextlib
import hashlib
import hmac
import http.server
import json
import ssl
import threading
import time

from tests.process import harness


def signature(secret, timestamp, body):
    text = str(timestamp).encode() + b"." + body
    return "v1=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


class Receiver:
    """Takes messages until it is closed. `answer(message)` is called for each request before it is
    answered, and returns the status (with headers, if it is a pair); by default all are accepted.
    `tls`: the files of a certificate and its key. `handler`: takes the requests instead."""

    def __init__(self, secret, port=0, tls=None, answer=None, handler=None):
        self.secret = secret
        # The bodies of all requests, and those that were answered with 204, in their order.
        self.requests = []
        self.accepted = []
        self.answer = answer or (lambda message: 204)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                receiver._take(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler or Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.port = self._server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def _take(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        message = json.loads(body)
        assert request.headers["Content-Type"] == "application/json"
        assert request.headers["User-Agent"].startswith("muster/")
        assert request.headers["Muster-Delivery"] == message["id"]
        stamp = request.headers["Muster-Timestamp"]
        valid = request.headers["Muster-Signature"] == signature(self.secret, stamp, body)
        message["valid"] = valid and abs(time.time() - int(stamp)) < harness.BOUND
        self.requests.append(message)
        answer = self.answer(message)
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        # The answer must not be on its way before the test can see the message.
        if status == 204:
            self.accepted.append(message)
        with contextlib.suppress(OSError):
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.send_header("Content-Length", "0")
            request.end_headers()

    def history(self, job_id):
        """The accepted messages about a job, without repeats."""
        seen, history = set(), []
        for message in list(self.accepted):
            if message["job_id"] == job_id and message["id"] not in seen:
                seen.add(message["id"])
                history.append(message)
        return history

    def states(self, job_id):
        return [message["state"] for message in self.history(job_id)]

    def await_state(self, job_id, state):
        harness.eventually(
            lambda: self.states(job_id)[-1:] == [state], f"a message says that {job_id} is {state}"
        )

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
