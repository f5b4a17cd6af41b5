"""Receives the webhooks of musterd (docs/webhook.md) with Python's standard library alone: checks
the signature, and drops messages that have come before."""

import collections
import hashlib
import hmac
import http.server
import json
import pathlib
import sys
import time

# A message that was signed longer ago may have been recorded by somebody.
LONGEST_AGE = 300
# Messages that may come again.
REMEMBERED = 10_000
LONGEST_BODY = 1 << 20


def is_signed(secret, timestamp, signature, body, now):
    """Whether musterd has signed this body, and not long ago."""
    if not timestamp.isdigit() or abs(now - int(timestamp)) > LONGEST_AGE:
        return False
    text = timestamp.encode() + b"." + body
    expected = "v1=" + hmac.new(secret, text, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode())


def serve(address, secret_file, handle):
    """Calls handle(message) for each message, in the order of each job, once. If it raises, musterd
    sends the message again later. Ends with SystemExit or KeyboardInterrupt."""
    host, _, port = address.rpartition(":")
    secret = pathlib.Path(secret_file).read_bytes().rstrip(b"\r\n")
    seen = collections.OrderedDict()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10  # for a sender that is silent

        def do_POST(self):
            length = int(self.headers.get("Content-Length", 0))
            if length > LONGEST_BODY:
                return self._answer(413)
            body = self.rfile.read(length)
            timestamp = self.headers.get("Muster-Timestamp", "")
            signature = self.headers.get("Muster-Signature", "")
            if not is_signed(secret, timestamp, signature, body, time.time()):
                return self._answer(401)
            message = json.loads(body)
            if message["id"] not in seen:
                try:
                    handle(message)
                except Exception as error:
                    print(f"job {message['job_id']}: {error}; to be sent again", file=sys.stderr)
                    return self._answer(500)
                seen[message["id"]] = True
                if len(seen) > REMEMBERED:
                    seen.popitem(last=False)
            return self._answer(204)

        def _answer(self, status):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    # One message after the other: this keeps them in their order.
    with http.server.HTTPServer((host, int(port)), Handler) as server:
        print(f"listening on {host}:{server.server_port}", flush=True)
        server.serve_forever()
