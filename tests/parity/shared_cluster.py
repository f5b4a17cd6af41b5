"""The cluster of a test file: `muster = shared_cluster.with_slots(2)` is a fixture for all of its
tests."""

import pytest

from tests import bazel
from tests.parity import cluster


def with_slots(slots):
    @pytest.fixture(scope="module")
    def muster(tmp_path_factory):
        folder = tmp_path_factory.mktemp("cluster")
        programs = cluster.install(bazel.runfile, folder / "bin")
        with cluster.Cluster(programs, folder, slots=slots) as running:
            yield running

    return muster
