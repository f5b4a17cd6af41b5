"""Tests that the program which runs the pages' commands notices errors in them."""

import re

import pytest

from tests.docs import guide

PAGE = """# A page
```sh
echo one
```
Words.
<!-- not run: it would hurt -->
```console
rm -r /
```
- in a list
  ```sh
  echo two
  ```
```text
```
"""


@pytest.fixture
def reader(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    return guide.Reader(folder, {})


def run(reader, text):
    return reader.run(guide.blocks("page.md", f"```sh\n{text}```\n"))


def test_blocks_are_found_with_their_place_and_the_line_above():
    found = guide.blocks("page.md", PAGE)
    assert [block.place for block in found] == [f"page.md:{line}" for line in (2, 7, 11, 14)]
    assert [block.language for block in found] == ["sh", "console", "sh", "text"]
    assert found[0].text == "echo one\n"
    assert found[1].above == "<!-- not run: it would hurt -->"
    assert found[2].text.strip() == "echo two"


def test_a_block_without_an_end_is_refused():
    with pytest.raises(AssertionError, match="page.md:1: the block has no end"):
        guide.blocks("page.md", "```sh\necho one\n")


def test_blocks_run_in_one_shell_in_their_order(reader):
    blocks = guide.blocks(
        "page.md", "```sh\nmkdir a && cd a\nx=1\n```\n```sh\ntouch b; echo $x\n```\n"
    )
    assert reader.run(blocks) == "1\n"
    assert (reader.folder / "a/b").exists()


@pytest.mark.parametrize("command", ["false", "false | true", "echo $nothing", "no-such-program"])
def test_a_command_that_fails_ends_it_and_is_told_with_its_place(reader, command):
    blocks = guide.blocks("page.md", f"```sh\ntrue\n```\n```sh\n{command}\ntouch after\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:4: exit code [1-9]"):
        reader.run(blocks)
    assert not (reader.folder / "after").exists()


def test_what_is_left_running_is_told_and_ended(reader):
    with pytest.raises(AssertionError, match=r"page.md:1: left running: {\d+"):
        run(reader, "sleep 1000 &\n")
    assert reader.processes() == {}


def test_what_is_left_in_the_temporary_folder_is_told(reader):
    with pytest.raises(AssertionError, match="left behind: .*forgotten"):
        run(reader, 'touch "$TMPDIR/forgotten"\n')


def test_what_hangs_is_ended(reader, monkeypatch):
    monkeypatch.setattr(guide, "BOUND", 0.1)
    with pytest.raises(AssertionError, match="it did not end"):
        run(reader, "sleep 1000\n")
    assert reader.processes() == {}


def test_ports_and_folders_of_the_machine_become_private(reader):
    said = run(
        reader, "echo 127.0.0.1:7070 127.0.0.1:7071 127.0.0.1:7070 /var/lib/muster\n"
    ).split()
    assert said[0] == said[2] != said[1]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", port) for port in said[:3])
    assert "127.0.0.1:7070" not in said
    assert said[3] == "./state"
