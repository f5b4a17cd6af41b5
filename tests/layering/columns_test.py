"""No line that people write is longer than 100 columns.

Left out are lines that cannot be broken without changing what they mean: tables and code blocks in
Markdown, raw strings in C++, and Bazel's list of options."""

import re

from tests.layering.sources import project_files, workspace

COLUMNS = 100
SUFFIXES = {".cc", ".h", ".hh", ".proto", ".py", ".sh", ".bzl", ".md", ".yaml", ".txt"}
# Not written by people, or one option a line.
LEFT_OUT = ("tests/faults/results/", "docs/reference/job-file.md")


def long_lines(name, text):
    """The numbers of the lines of a file that are too long."""
    in_block = False
    in_raw_string = False
    for number, line in enumerate(text.splitlines(), 1):
        if name.endswith(".md"):
            fence = line.lstrip().startswith("```")
            in_block ^= fence
            if in_block or fence or line.lstrip().startswith("|"):
                continue
        raw_here = in_raw_string
        if name.endswith((".cc", ".h")):
            for mark in re.findall(r'R"\(|\)"', line):
                in_raw_string = mark == 'R"('
                raw_here = True
        if len(line) > COLUMNS and not raw_here:
            yield number


def test_lines_have_at_most_100_columns():
    found = [
        f"{name}:{number}"
        for name in project_files()
        if (name.endswith("/BUILD") or name[name.rfind(".") :] in SUFFIXES)
        and not name.startswith(LEFT_OUT)
        for number in long_lines(name, (workspace() / name).read_text())
    ]
    assert not found, f"{len(found)} lines are longer than {COLUMNS} columns: {found[:20]}"


def test_a_long_line_is_found_and_a_table_is_not():
    assert list(long_lines("a.cc", "short\n" + "x" * 101 + "\n")) == [2]
    assert list(long_lines("a.md", "| " + "x" * 101 + "\n```\n" + "y" * 101 + "\n```\n")) == []
    assert list(long_lines("a.md", "```\ny\n```\n" + "z" * 101)) == [4]
    assert list(long_lines("a.h", 'f(R"(' + "x" * 101 + ')");')) == []
