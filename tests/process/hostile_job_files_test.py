"""Job files that were made to take all memory, to never end, or to write to the terminal."""

import resource

import pytest
import yaml

from tests.process import jobs

# Far more than a job file needs, and far less than it took.
MEMORY = 1 << 30


def validate(muster, path, expect=2):
    """`muster validate` with a limit of memory; its bound of time is that of every command."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        return muster.cli("validate", path, expect=expect).err
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_that_never_ends_is_read_up_to_the_limit(muster, device):
    said = validate(muster, device)
    assert device in said and "1048576" in said, said


def test_aliases_count_with_what_they_stand_for(muster):
    path = jobs.write_job(muster.folder)
    text = path.read_text()
    big = "x" * 100_000
    path.write_text(f"{text}labels: [&a {big}, {', '.join(['*a'] * 20_000)}]\n")
    said = validate(muster, path)
    assert "aliases" in said and "1048576" in said, said


def test_a_quote_that_never_ends_is_named_at_its_line(muster):
    path = jobs.write_job(muster.folder)
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("seed:"))
    lines[at] = 'seed: "7'
    path.write_text("\n".join(lines) + "\n")
    said = validate(muster, path)
    assert f"{path.name}:{at + 1}: " in said and "the quote that begins here" in said, said


def test_texts_of_a_job_move_no_cursor(muster):
    """Not in what a command says of a job file, and not in what it says of a job."""
    escape = "\x1b[2J\u009b31m\u202e"
    path = jobs.write_job(muster.folder, name="hostile.yaml")
    spec = yaml.safe_load(path.read_text())
    spec["data"]["train"]["tokens"]["path"] = f"no{escape}where.bin"
    path.write_text(yaml.safe_dump(spec))
    result = muster.cli("run", path, expect=None)
    assert result.code in (2, 100)
    said = result.out + result.err
    assert "where.bin" in said and "\\x1b" in said, said
    for one in escape:
        assert one == "[" or one.isalnum() or one not in said, said
    muster.assert_no_process()
