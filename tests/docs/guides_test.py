"""The commands of README and the guides do what the pages say, and leave nothing running."""

import pathlib
import re
import shutil

import pytest

from tests.bazel import runfile
from tests.docs import guide
from tests.process import jobs

ROOT = runfile("README.md").parent
PROGRAMS = {
    "muster": "client/cli/muster",
    "musterd": "coordinator/musterd",
    "muster-agent": "worker/agent/muster-agent",
    "muster-worker": "worker/muster-worker",
}
# The files that a page may name or read beside PROGRAMS.
FILES = ["README.md", "CONTRIBUTING.md", "docs", "examples", "deploy", "plugin", "quickstart.sh"]
FILES += ["third_party/bazel_progress.py"]

PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
BLOCKS = {page: guide.blocks(page, text) for page, text in PAGES.items()}
RUN = {page: [block for block in found if block.language == "sh"] for page, found in BLOCKS.items()}


def own_job(folder):
    """README speaks of somebody's job.yaml: a small one."""
    jobs.write_job(folder, checkpoint=None)


def with_fewer_steps(file, steps, fewer):
    """Shows that a job runs, not how well it learns in the end: other tests do."""

    def change(folder):
        text = (folder / file).read_text()
        assert text.count(steps) == 1, f"{file}: no '{steps}'"
        (folder / file).write_text(text.replace(steps, fewer))

    return change


def tuned_weights_are_better(folder, printed):
    ((before, after),) = re.findall(r"held-out loss: pretrained ([\d.]+), tuned ([\d.]+)", printed)
    assert float(after) < float(before) - 0.1
    # Muster's last loss is the loss that transformers computes from the exported weights. Both
    # print 4 digits.
    (reported,) = re.findall(r"SUCCEEDED: .* validation loss ([\d.]+),", printed)
    assert abs(float(reported) - float(after)) < 2e-4
    assert (folder / "out/fine-tune/tuned/config.json").is_file()


def arms_are_told_apart(folder, printed):
    (loss,) = re.findall(r"SUCCEEDED: 300/300 .* validation loss ([\d.]+),", printed)
    assert float(loss) < 0.3  # guessing: 1.1, or 0.5 by the focal loss


BEFORE = {
    "README.md": own_job,
    "docs/start/first-job.md": own_job,
    "docs/reference/data.md": with_fewer_steps(
        "examples/images/images.yaml",
        "steps: 240, validate_every: 80",
        "steps: 60, validate_every: 60",
    ),
}
AFTER = {
    "docs/how-to/fine-tune.md": tuned_weights_are_better,
    "docs/reference/models.md": arms_are_told_apart,
    "docs/how-to/plugins.md": arms_are_told_apart,
}


@pytest.fixture
def reader(tmp_path):
    folder = tmp_path / "muster"
    folder.mkdir()
    for name in FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        elif (ROOT / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return guide.Reader(folder, {name: runfile(path) for name, path in PROGRAMS.items()})


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    for block in BLOCKS[page]:
        assert block.language, f"{block.place}: sh, console (commands that are not run), text, ...?"
        if block.language == "console":
            assert re.match(
                r"<!-- not run: .+ -->$", block.above
            ), f"{block.place}: the line above says why not"
        else:
            assert block.language in {
                "sh",
                "text",
                "yaml",
                "json",
                "python",
                "cc",
                "cpp",
            }, block.place


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """To files that are there, and headings of them."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, fragment = target.partition("#")
        steps = resolve(pathlib.PurePath(page).parent / path) if path else [page]
        leads_to = "/".join(steps)
        if leads_to in PAGES:
            assert not fragment or fragment in guide.anchors(
                PAGES[leads_to]
            ), f"{page}: no heading {target}"
        else:
            assert (ROOT / leads_to).exists(), f"{page}: {target} leads nowhere"


def resolve(path):
    parts = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else parts + [part]
    return parts


@pytest.mark.parametrize("page", [page for page in PAGES if RUN[page]])
def test_commands_work(page, reader):
    BEFORE.get(page, lambda folder: None)(reader.folder)
    printed = reader.run(RUN[page])
    print(printed[-4000:])
    AFTER.get(page, lambda folder, printed: None)(reader.folder, printed)


def test_quickstart_works(reader):
    """All of it but installing and building, which have been done, and fewer steps."""
    stand_ins = reader.folder / "third_party/install.sh", reader.home / "bin/bazel"
    for stand_in in stand_ins:
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text("#!/bin/sh\n")
        stand_in.chmod(0o755)
    for name, path in PROGRAMS.items():
        (reader.folder / "bazel-bin" / path).parent.mkdir(parents=True, exist_ok=True)
        (reader.folder / "out/bin" / name).rename(reader.folder / "bazel-bin" / path)
    with_fewer_steps(
        "deploy/quickstart/licences-gpt.yaml",
        "steps: 150, validate_every: 50",
        "steps: 20, validate_every: 10",
    )(reader.folder)
    printed = reader.run(
        [guide.Block("quickstart.sh", 1, "sh", 'PATH="$HOME/bin:$PATH" ./quickstart.sh\n', "")]
    )
    assert "SUCCEEDED: 20/20" in printed, printed
    assert (reader.folder / "out/quickstart/model/model.safetensors").is_file()
