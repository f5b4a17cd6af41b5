"""Debian's Prometheus, which scrapes a musterd of a test; and pages that are read directly."""

import http.client
import json
import re
import shutil
import signal
import subprocess
import urllib.parse

import pytest
import yaml

from tests.bazel import bound
from tests.process import harness

# Also the time that musterd has for an answer, on a machine that is busy with other tests.
INTERVAL = "3s"


def program(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: third_party/install.sh --tests installs it")
    return found


def get(address, path, headers=None):
    """(status, text) of a page."""
    connection = http.client.HTTPConnection(address, timeout=bound(30))
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Prometheus:
    """Scrapes one address until it is stopped. `rules`: a file."""

    def __init__(self, muster, target, rules=None):
        self.folder = muster.folder / "prometheus"
        self.folder.mkdir()
        config = {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL},
            "scrape_configs": [{"job_name": "muster", "static_configs": [{"targets": [target]}]}],
        }
        if rules is not None:
            config["rule_files"] = [str(rules)]
            config["global"]["evaluation_interval"] = INTERVAL
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = self.folder / "log"
        with open(self._log, "wb") as log:
            self._child = subprocess.Popen(
                [
                    program("prometheus"),
                    "--config.file=prometheus.yml",
                    "--storage.tsdb.path=data",
                    "--web.listen-address=127.0.0.1:0",
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=muster.environment(),
            )
        self.address = harness.eventually(self._listens, "Prometheus listens")
        harness.eventually(lambda: get(self.address, "/-/ready")[0] == 200, "Prometheus is ready")

    def _listens(self):
        text = self._log.read_text()
        assert self._child.poll() is None, text
        found = re.search(r'msg="Listening on" address=(\S+)', text)
        return found and found[1]

    def api(self, path, **parameters):
        status, text = get(
            self.address, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        )
        answer = json.loads(text)
        assert status == 200 and answer["status"] == "success", f"{path} {parameters}: {text}"
        return answer["data"]

    def query(self, expression):
        """[({label: value}, number)] of an instant query."""
        found = self.api("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def value(self, expression):
        """The only value of an expression; None: there is none."""
        values = [value for _, value in self.query(expression)]
        assert len(values) <= 1, f"{expression}: {values}"
        return values[0] if values else None

    def scrapes(self):
        """Returns the number of scrapes, and the number of failed scrapes."""
        counts = (self.value(f"sum({f}_over_time(up[1h]))") for f in ("count", "sum"))
        all_of_them, good = (int(value or 0) for value in counts)
        return all_of_them, all_of_them - good

    def stop(self):
        self._child.send_signal(signal.SIGTERM)
        code = self._child.wait(timeout=harness.BOUND)
        assert code == 0, self._log.read_text()
