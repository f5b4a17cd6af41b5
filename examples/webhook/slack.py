"""Tells a Slack channel what happens to the jobs of a musterd.

    openssl rand -hex 32 >secret && chmod 600 secret
    export SLACK_WEBHOOK_URL=https://hooks.slack.com/services/...   # an incoming webhook
    python examples/webhook/slack.py --listen 127.0.0.1:8090 --secret secret &
    musterd --webhook http://127.0.0.1:8090/ --webhook-secret secret ...

It needs nothing but Python."""

import argparse
import json
import os
import signal
import sys
import urllib.request

import receiver

STATES = ["RUNNING", "PAUSED", "RECOVERING", "SUCCEEDED", "FAILED", "CANCELLED"]
MARKS = {"SUCCEEDED": ":white_check_mark:", "FAILED": ":x:", "RECOVERING": ":warning:"}


def escape(text):
    """These three characters have a meaning in Slack's texts."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def text_of(message):
    mark = MARKS.get(message["state"], ":information_source:")
    text = f"{mark} job `{escape(message['job_id'])}` is {message['state']}"
    if message["step"]:
        text += f" after step {message['step']}"
    if message["attempt"] > 1:
        text += f" (attempt {message['attempt']})"
    if message["message"]:
        text += f": {escape(message['message'])}"
    return text


def post(url, text):
    request = urllib.request.Request(
        url,
        data=json.dumps({"text": text}).encode(),
        headers={"Content-Type": "application/json"},
    )
    # musterd waits 5 s for the answer.
    with urllib.request.urlopen(request, timeout=4):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:8090", metavar="HOST:PORT")
    parser.add_argument("--secret", required=True, metavar="FILE", help="as --webhook-secret")
    parser.add_argument("--states", default=",".join(STATES), help="which changes are posted")
    arguments = parser.parse_args()
    url = os.environ.get("SLACK_WEBHOOK_URL")
    if not url:
        parser.error("SLACK_WEBHOOK_URL is not set: it must be the URL of an incoming webhook")
    states = arguments.states.split(",")

    def handle(message):
        if message["state"] in states:
            post(url, text_of(message))

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    receiver.serve(arguments.listen, arguments.secret, handle)


if __name__ == "__main__":
    main()
