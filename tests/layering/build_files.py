"""The targets of the project, from its BUILD files.

BUILD files and .bzl files are written in Starlark, a part of Python. This module runs them as
Python, with functions in place of Bazel's rules that only record their arguments. So the targets
that a macro defines are found, too. For the shipped programs layering_test.py compares this graph
with Bazel's own."""

import collections
import dataclasses
import functools
import glob
import pathlib
import re
import sys

from tests.layering.sources import project_files, workspace

# Bazel's own rules that BUILD files here use.
RULES = (
    "alias cc_binary cc_library cc_test config_setting filegroup genquery genrule sh_test "
    "test_suite"
).split()


@dataclasses.dataclass
class Target:
    label: str
    rule: str
    package: str
    # The line of the target in its file.
    line: int
    attributes: dict
    # The packages that may use it, as in its BUILD file: "//worker/train:__pkg__".
    visibility: list = dataclasses.field(default_factory=list)

    @property
    def where(self):
        return f"{self.package}/BUILD:{self.line}".lstrip("/")

    def labels(self, *names):
        """The labels that these attributes name, in full."""
        found = []
        for name in names:
            found += [full_label(self.package, label) for label in self.attributes.get(name) or []]
        return found

    def edges(self):
        """Every label on which it depends, from the attributes of the rules that are used here."""
        header = [self.attributes["header"]] if "header" in self.attributes else []
        found = self.labels("srcs", "hdrs", "textual_hdrs", "deps", "data")
        return found + [full_label(self.package, label) for label in header]

    @property
    def testonly(self):
        return bool(self.attributes.get("testonly")) or self.rule.endswith("_test")


def full_label(package, label):
    '''":x" in package a/b is "//a/b:x"; "//a/b" is "//a/b:b".'''
    if label.startswith("@") and "//" not in label:
        label += "//:" + label[1:]
    if "//" not in label:
        return f"//{package}:{label.removeprefix(':')}"
    if ":" not in label:
        return f"{label}:{label[label.rfind('/') + 1:]}"
    return label


class Anything:
    """Stands for values that only Bazel uses."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self


class Reader:
    def __init__(self):
        self.targets = {}
        self.package = None
        self.default_visibility = []
        self.loaded = {}

    def note(self, rule, **attributes):
        build_file = f"{self.package}/BUILD".lstrip("/")
        frame = sys._getframe(1)
        while frame.f_code.co_filename != build_file:
            frame = frame.f_back
        label = full_label(self.package, attributes["name"])
        assert label not in self.targets, f"{build_file}:{frame.f_lineno}: a second {label}"
        visibility = attributes.get("visibility", self.default_visibility)
        self.targets[label] = Target(
            label, rule, self.package, frame.f_lineno, attributes, visibility
        )

    def set_package(self, default_visibility=(), **_):
        self.default_visibility = list(default_visibility)

    def exports_files(self, srcs, visibility=("//visibility:public",), **_):
        """A file that other packages may name becomes a separate target."""
        for name in srcs:
            self.note("exports_files", name=name, visibility=list(visibility))

    def glob(self, include, exclude=(), **_):
        folder = workspace() / self.package
        found = {
            name for one in include for name in glob.glob(one, root_dir=folder, recursive=True)
        }
        found -= {
            name for one in exclude for name in glob.glob(one, root_dir=folder, recursive=True)
        }
        return sorted(name for name in found if (folder / name).is_file())

    def functions(self, namespace):
        """The functions that a file may call; the symbols that it loads are added to its
        namespace."""
        rules = {rule: functools.partial(self.note, rule) for rule in RULES}
        members = rules | {"package_name": lambda: self.package}
        native = type("native", (), {name: staticmethod(rule) for name, rule in members.items()})

        def load(file, *names, **renamed):
            if file.startswith(("//", ":")):
                values = self.load(full_label(self.package, file))
            else:
                values = collections.defaultdict(Anything)
            namespace.update({name: values[name] for name in names})
            namespace.update({name: values[renamed[name]] for name in renamed})

        return rules | {
            "CcInfo": Anything(),
            "attr": Anything(),
            "cc_common": Anything(),
            "exports_files": self.exports_files,
            "fail": Anything(),
            "glob": self.glob,
            "load": load,
            "native": native,
            "package": self.set_package,
            "rule": lambda **_: functools.partial(self.note, "rule"),
            # Every case of a choice: what may be used at all.
            "select": lambda cases: sum(cases.values(), []),
        }

    def run(self, file, text):
        namespace = {}
        namespace.update(self.functions(namespace))
        exec(compile(text, file, "exec"), namespace)
        return namespace

    def load(self, label):
        if label not in self.loaded:
            file = label.removeprefix("//").replace(":", "/")
            self.loaded[label] = self.run(file, (workspace() / file).read_text())
        return self.loaded[label]

    def read(self, package, text):
        self.package = package
        self.default_visibility = []
        self.run(f"{package}/BUILD".lstrip("/"), text)


def read_build_files(texts):
    """Label -> target, for the text of each package's BUILD file."""
    reader = Reader()
    for package, text in texts.items():
        reader.read(package, text)
    return reader.targets


@functools.lru_cache
def project_targets():
    """Label -> target, of the whole checkout."""
    texts = {}
    for name in project_files():
        if re.search(r"(^|/)BUILD$", name) and not name.startswith(
            ("third_party/rules_cc/", "third_party/coverage/")  # repositories of their own
        ):
            folder = str(pathlib.Path(name).parent)
            texts["" if folder == "." else folder] = (workspace() / name).read_text()
    return read_build_files(texts)
