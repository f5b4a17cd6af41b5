"""Plug-ins are loaded only from where the operator of an agent says, whatever a job asks for."""

import os

import pytest
import yaml

from tests.process import inputs


def job_folder(muster, name):
    """Of a job of one rank, with its plug-in."""
    folder = muster.folder / name
    folder.mkdir()
    job = inputs.plugin_job(folder, world_size=1)
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder


def ends(muster, folder, expect):
    """Runs the job in this folder; returns what it failed with."""
    job_id = f"{folder.name}-{len(os.listdir(folder))}"
    (folder / job_id).touch()
    muster.cli("submit", folder / "job.yaml", "--id", job_id)
    muster.cli("wait", job_id, expect=expect)
    job = muster.cli("get", job_id, "-o", "json").json()
    assert job.get("restarts", 0) == 0, job
    return job.get("failure", {}).get("reason")


def test_an_agent_loads_plugins_from_the_folders_of_its_operator_only(muster):
    muster.agent_arguments = ()
    daemon = muster.musterd()
    folder = job_folder(muster, "job")
    agent = muster.agent("a")
    said = ends(muster, folder, expect=100)
    for part in (
        f"plug-in {folder / 'focal.so'}: the agent of this node does not load it",
        "expected a file in a folder that it was started with (--plugins), and there is none",
        "let the operator of the node start muster-agent",
    ):
        assert part in said, said
    muster.stop(agent)

    (muster.folder / "link").symlink_to(folder)
    muster.agent_arguments = ("--plugins", muster.folder / "link")
    agent = muster.agent("b")
    assert ends(muster, folder, expect=0) is None
    other = job_folder(muster, "other")
    assert f"expected a file in {folder.resolve()}, found" in ends(muster, other, expect=100)
    muster.stop(agent, daemon)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can give a file away")
def test_the_agent_of_musterd_loads_its_users_files_and_no_others(muster):
    daemon = muster.musterd(local_slots=1)
    folder = job_folder(muster, "job")
    assert ends(muster, folder, expect=0) is None
    os.chown(folder / "focal.so", 12345, -1)
    said = ends(muster, folder, expect=100)
    expected = "expected a file of the agent's user (uid 0) or of root that not everybody can write"
    assert expected in said and "of uid 12345" in said, said
    muster.stop(daemon)
    daemon = muster.musterd(local_slots=1, more=["--plugins", folder])
    assert ends(muster, folder, expect=0) is None
    muster.stop(daemon)
