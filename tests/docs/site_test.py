"""`mkdocs build --strict` makes the site of the pages, and links that people have lead to their
pages still."""

import os
import re
import subprocess
import sys

import pytest

from tests.bazel import runfile
from tests.docs import guide

ROOT = runfile("mkdocs.yml").parent
# Name of a page that lay in docs/ itself -> its shelf.
SHELVES = {
    "agent": "reference",
    "checkpoint-format": "reference",
    "cli": "reference",
    "collectives": "internals",
    "commands": "concepts",
    "data": "reference",
    "ema": "concepts",
    "errors": "reference",
    "faults": "reference",
    "fine-tune": "how-to",
    "generate": "how-to",
    "gpu": "how-to",
    "install": "how-to",
    "job-file": "reference",
    "layout": "reference",
    "limits": "reference",
    "memory": "reference",
    "metrics": "reference",
    "model-folder": "how-to",
    "models": "reference",
    "monitoring": "how-to",
    "operate": "how-to",
    "optimizer-state": "how-to",
    "optimizers": "reference",
    "plugins": "how-to",
    "predict": "how-to",
    "profile": "how-to",
    "protocol-coordinator": "internals",
    "python": "how-to",
    "roll-call": "internals",
    "sampler": "reference",
    "security": "how-to",
    "stages": "concepts",
    "store": "internals",
    "strategies": "concepts",
    "tensorboard": "how-to",
    "trainability": "concepts",
    "uneven-inputs": "concepts",
    "upgrade": "how-to",
    "watchdog": "concepts",
    "webhook": "how-to",
}
# Word of the glossary -> where it is explained, and nowhere else.
OWNERS = {
    "Lease": "internals/protocol-coordinator.md#time",
    "Generation": "internals/protocol-coordinator.md#identity",
    "Roll call": "internals/roll-call.md",
    "Checkpoint": "reference/checkpoint-format.md#writing-the-commit-rule",
    "Bucket": "reference/layout.md#buckets",
    "Unit": "concepts/strategies.md#units",
    "Slot": "reference/agent.md#slots",
    "Operation": "concepts/commands.md#the-life-of-a-command",
    "Drain": "how-to/operate.md#drains",
    "Attempt": "internals/protocol-coordinator.md#attempts",
}
# PAGE.md#ANCHOR of each heading of these pages when they lay in docs/ itself.
OLD_ANCHORS = runfile("tests/docs/old_anchors.txt").read_text().split()

LOADED = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_page_is_in_the_site(site):
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 80
    made = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert pages - made == set()


def test_the_index_names_each_page_and_outside_of_the_shelves_are_only_former_paths():
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.glob("*/*.md")}
    named = re.findall(r"\]\(([\w-]+/[\w-]+\.md)\)", (docs / "index.md").read_text())
    assert pages == set(named)
    assert {path.stem for path in docs.glob("*.md")} == {*SHELVES, "index"}


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = LOADED.findall(page.read_text())
        assert loaded and not [path for path in loaded if re.match(r"(\w+:)?//", path)], page


@pytest.mark.parametrize("name, shelf", SHELVES.items())
def test_the_former_path_of_a_page_leads_to_it(site, name, shelf):
    page = (ROOT / f"docs/{shelf}/{name}.md").read_text()
    title = page.partition("\n")[0]
    stub = f"{title}\nThis page moved to [{shelf}/{name}.md]({shelf}/{name}.md).\n"
    assert (ROOT / f"docs/{name}.md").read_text() == stub
    assert f'href="{shelf}/{name}.html"' in (site / f"{name}.html").read_text()


@pytest.mark.parametrize("name", SHELVES)
def test_a_page_has_the_headings_that_links_may_name(name):
    text = (ROOT / f"docs/{SHELVES[name]}/{name}.md").read_text()
    wanted = {old.partition("#")[2] for old in OLD_ANCHORS if old.startswith(f"{name}.md#")}
    assert wanted - guide.anchors(text) == set()


@pytest.mark.parametrize("word, owner", OWNERS.items())
def test_the_glossary_leads_to_the_page_that_owns_a_fact(word, owner):
    text = (ROOT / "docs/reference/glossary.md").read_text()
    (entry,) = re.findall(rf"^\*\*{word}\*\*(?: \(of a node\))?: .*?(?=\n\n|\Z)", text, re.M | re.S)
    (target,) = re.findall(r"\]\(([^)]+)\)", entry)
    assert os.path.normpath(os.path.join("reference", target)) == owner
    page, _, fragment = owner.partition("#")
    assert not fragment or fragment in guide.anchors((ROOT / "docs" / page).read_text())


def test_a_link_that_leads_nowhere_fails(tmp_path):
    """The other tests would find it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# A page\n[x](y.md) [z](#nowhere)\n")
    (tmp_path / "docs/site_hooks.py").write_text((ROOT / "docs/site_hooks.py").read_text())
    settings = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(settings[: settings.index("nav:\n  - Pages")])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "y.md" in done.stderr and "#nowhere" in done.stderr, done.stderr
