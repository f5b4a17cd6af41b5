"""Receives the webhooks of musterd (docs/how-to/webhook.md) with only Python's standard library.
It checks the signature, and drops repeated messages."""

import collections
import hashlib
import hmac
import http.server
import json
import pathlib
import sys
import threading
import time

# The longest time since the signature: an older message may be a recorded one.
LONGEST_AGE = 300
# The number of messages that are remembered, because they may come again.
REMEMBERED = 10_000
LONGEST_BODY = 1 << 20


def is_signed(secret, timestamp, signature, body, now):
    """Returns True if musterd has signed this body, and not long ago."""
    if not timestamp.isdigit() or abs(now - int(timestamp)) > LONGEST_AGE:
        return False
    text = timestamp.encode() + b"." + body
    expected = "v1=" + hmac.new(secret, text, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())


def length_of(text):
    """Returns the number of bytes in a header Content-Length; None: there is no number."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


def serve(address, secret_file, handle):
    """Calls handle(message) once for each message: one at a time, and in order for each job. If
    `handle` raises, musterd sends the message again later. Ends with SystemExit or
    KeyboardInterrupt."""
    host, _, port = address.rpartition(":")
    secret = pathlib.Path(secret_file).read_bytes().rstrip(b"\r\n")
    seen = collections.OrderedDict()
    # musterd sends the next message about a job once it has the answer to the last one. So messages
    # keep their order, although each connection has a thread.
    one_at_a_time = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10  # for a sender that is silent

        def do_POST(self):
            length = length_of(self.headers.get("Content-Length"))
            if length is None:
                return self._answer(411)
            if length > LONGEST_BODY:
                return self._answer(413)
            body = self.rfile.read(length)
            timestamp = self.headers.get("Muster-Timestamp", "")
            signature = self.headers.get("Muster-Signature", "")
            if not is_signed(secret, timestamp, signature, body, time.time()):
                return self._answer(401)
            with one_at_a_time:
                return self._answer(self._take(json.loads(body)))

        def _take(self, message):
            if message["id"] not in seen:
                try:
                    handle(message)
                except Exception as error:
                    print(f"job {message['job_id']}: {error}; to be sent again", file=sys.stderr)
                    return 500
                seen[message["id"]] = True
                if len(seen) > REMEMBERED:
                    seen.popitem(last=False)
            return 204

        def _answer(self, status):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    # Each connection has a thread, so that a slow sender does not delay the others.
    with http.server.ThreadingHTTPServer((host, int(port)), Handler) as server:
        print(f"listening on {host}:{server.server_port}", flush=True)
        server.serve_forever()
