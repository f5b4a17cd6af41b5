"""Each target of fuzz.py names all sources that it links. `--long` compiles them, CI does not."""

import re

import pytest

from tests.fuzz import fuzz

INCLUDE = re.compile(r'^#include "((?:common|worker)/[^"]+)\.h"', re.MULTILINE)


def included(path):
    return [fuzz.ROOT / f"{name}.cc" for name in INCLUDE.findall(path.read_text())]


@pytest.mark.parametrize("target", fuzz.SOURCES)
def test_a_target_has_the_source_of_each_header_that_it_includes(target):
    sources = fuzz.sources(target)
    headers = [source.with_suffix(".h") for source in sources if source.with_suffix(".h").exists()]
    needed = {made for path in [*sources, *headers] for made in included(path) if made.exists()}
    missing = sorted(str(path.relative_to(fuzz.ROOT)) for path in needed - set(sources))
    assert missing == [], f"fuzz.py, SOURCES['{target}']"
