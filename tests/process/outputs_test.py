"""Tests that a file at the path of a job's output is replaced only if a job of the same name wrote
the file."""

import os
import stat

import pytest
import yaml

from tests.process import jobs


def refused(muster, job_file, *words):
    """Neither `validate` nor `run` takes the job file, and both say why."""
    for command in ("validate", "run"):
        result = muster.cli(command, job_file, expect=2)
        for word in words:
            assert word in result.err, result.err
    muster.assert_no_process()


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "programs.log"
    }


@pytest.mark.parametrize("name", ["unrelated", "fifo", "data", "link", "folder"])
def test_an_export_replaces_nothing_that_no_job_of_this_name_wrote(muster, name):
    path = muster.folder / "model.safetensors"
    job_file = jobs.write_job(muster.folder)
    if name == "unrelated":
        path.write_text("my thesis")
    elif name == "fifo":
        os.mkfifo(path)
    elif name == "data":
        path = muster.folder / "train.bin"
        job_file = jobs.write_job(muster.folder, export={"path": "train.bin", "overwrite": True})
    elif name == "link":
        (muster.folder / "thesis").write_text("my thesis")
        path.symlink_to("thesis")
    else:
        path.mkdir()
    before = snapshot(muster.folder)
    refused(muster, job_file, "export.path", str(path))
    assert snapshot(muster.folder) == before
    assert stat.S_ISFIFO(path.lstat().st_mode) == (name == "fifo")


def test_a_config_of_somebody_else_stays(muster):
    config = muster.folder / "config.json"
    config.write_text('{"mine": true}')
    result = muster.cli("run", jobs.write_job(muster.folder), expect=None)
    assert result.code in (2, 100) and "config.json" in result.err, result.err
    assert config.read_text() == '{"mine": true}'
    assert not (muster.folder / "model.safetensors").exists()


def test_the_same_job_replaces_its_own_outputs_and_another_one_does_not(muster):
    job_file = jobs.write_job(muster.folder)
    muster.cli("run", job_file)
    first = (muster.folder / "model.safetensors").read_bytes()
    muster.cli("run", jobs.write_job(muster.folder, stages=[{"fit": {"steps": 21}}]))
    second = (muster.folder / "model.safetensors").read_bytes()
    assert second != first
    other = jobs.write_job(muster.folder, name="other.yaml")
    other.write_text(yaml.safe_dump(yaml.safe_load(other.read_text()) | {"name": "other"}))
    refused(muster, other, "export.path", "tiny")
    assert (muster.folder / "model.safetensors").read_bytes() == second
    # It is asked for.
    text = yaml.safe_load(other.read_text())
    text["export"]["overwrite"] = True
    other.write_text(yaml.safe_dump(text))
    muster.cli("run", other)
    assert (muster.folder / "model.safetensors").read_bytes() != second
    muster.assert_no_process()
