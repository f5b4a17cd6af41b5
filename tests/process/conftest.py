import pytest

from tests.process import harness


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return harness.install(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def muster(programs, tmp_path):
    """A Muster of which no program runs yet. After a test that passed, no process of it may be
    left."""
    folder = tmp_path / "work"
    folder.mkdir()
    muster = harness.Muster(programs, folder)
    yield muster
    left = muster.processes()
    muster.close()
    assert left == [], "processes were left behind"
    muster.assert_no_temporary_file()
