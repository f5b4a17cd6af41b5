"""Prints figures about the structure of the tree, for comparing two commits:
`python -m tests.layering.figures [FOLDER]` (FOLDER: a checkout; left out: this one).

Only files in git count. Production: C++, Python, protos, scripts and the page outside tests/ and
bench/, without tests, what only tests use (`testonly` in a BUILD file) and their data. Classes are
read with tree-sitter: a function is a member function, also one of a template; a field is a member
that is not static."""

import argparse
import collections
import pathlib
import re
import subprocess

import tree_sitter
import tree_sitter_cpp

CODE = {".cc", ".h", ".hh", ".py", ".proto", ".sh", ".bzl", ".js", ".css", ".html", ".sql"}
TESTS = re.compile(
    r"^(tests|bench)/|_test\.|(^|/)(fake_|test_|testdata/)|fixture|conftest|/world\."
)
# One thing of each kind that people add, and how code names it.
KINDS = {
    "command (set-lr)": r"set.?lr|SetLr|SetLearningRate",
    "metric (grad_norm)": r"grad_?norm",
    "optimizer (lion)": r"\blion|Lion\b|kLion",
    "model (llama)": r"llama",
    "rpc (CordonNode)": r"CordonNode|cordon_node",
    "job state (RECOVERING)": r"kRecovering|RECOVERING",
    "data format (idx)": r"\bidx\b|Idx[A-Z]|idx_dataset",
    "fault test (full disk)": r"full_disk|FullDisk",
}
TARGET = re.compile(r"^\w+\(\n.*?^\)", re.MULTILINE | re.DOTALL)
SOURCES = re.compile(r"(?:srcs|hdrs) = \[(.*?)\]", re.DOTALL)
DUPLICATE_LINES = 8
# Macros that tree-sitter would take for a function's parameters.
ANNOTATIONS = re.compile(r"\bABSL_[A-Z_]+(\([^()]*\))?")


def kind_of(name):
    suffix = pathlib.PurePath(name).suffix
    if name.endswith("BUILD") or suffix == ".bzl":
        return "BUILD"
    if suffix == ".md":
        return "docs"
    if suffix not in CODE:
        return None
    return "tests" if TESTS.search(name) else "production"


def only_for_tests(texts):
    """The files of targets that are `testonly`."""
    for build, text in texts.items():
        if pathlib.PurePath(build).name == "BUILD":
            for target in TARGET.findall(text):
                if "testonly" in target:
                    for file in re.findall(r'"(.+?)"', "".join(SOURCES.findall(target))):
                        yield str(pathlib.PurePath(build).parent / file)


def lists_of_classes(node):
    if node.type in ("class_specifier", "struct_specifier") and node.child_by_field_name("body"):
        yield node
    for child in node.children:
        yield from lists_of_classes(child)


def declares_function(node):
    if node.type == "function_declarator":
        inner = node.child_by_field_name("declarator")
        return inner is None or inner.type != "parenthesized_declarator"
    inside = {"parameter_list", "template_argument_list", "initializer_list"}
    return any(declares_function(c) for c in node.children if c.type not in inside)


def size_of(node):
    """(functions, fields) of a class."""
    functions = fields = 0
    for member in node.child_by_field_name("body").children:
        if member.type in ("function_definition", "template_declaration"):
            functions += 1
        elif member.type in ("field_declaration", "declaration"):
            if declares_function(member):
                functions += 1
            elif not any(c.type == "storage_class_specifier" for c in member.children):
                fields += len(member.children_by_field_name("declarator"))
    return functions, fields


def classes(texts):
    """(functions, fields, name, file) of each class."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))
    for name, text in texts.items():
        if not name.endswith((".h", ".cc")):
            continue
        text = ANNOTATIONS.sub("", text)
        for node in lists_of_classes(parser.parse(text.encode()).root_node):
            title = node.child_by_field_name("name")
            yield (*size_of(node), title.text.decode() if title else "?", name)


def duplicates(texts):
    """Lines of C++ that stand, in the same order, in another place too."""
    places = collections.defaultdict(list)
    for name, text in texts.items():
        if not name.endswith((".h", ".cc")):
            continue
        lines = [
            (number, line.strip())
            for number, line in enumerate(text.splitlines())
            if len(line.strip()) > 3 and not line.lstrip().startswith(("//", "#"))
        ]
        for i in range(len(lines) - DUPLICATE_LINES + 1):
            window = lines[i : i + DUPLICATE_LINES]
            key = "\n".join(line for _, line in window)
            places[key].append([(name, number) for number, _ in window])
    found = set()
    for windows in places.values():
        if len(windows) > 1:
            found.update(place for window in windows for place in window)
    return len(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default=".")
    root = pathlib.Path(parser.parse_args().folder)
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    texts = {}
    for name in filter(None, listed):
        if kind_of(name) is not None and (root / name).is_file():
            texts[name] = (root / name).read_text(errors="replace")
    kinds = {name: kind_of(name) for name in texts}
    kinds.update((name, "tests") for name in only_for_tests(texts) if name in texts)
    production = {name: text for name, text in texts.items() if kinds[name] == "production"}

    print("== The ten classes with most functions: functions, fields, class, file")
    found = list(classes(production))
    for functions, fields, title, name in sorted(found, reverse=True)[:10]:
        print(f"{functions:6} {fields:6}  {title}  {name}")
    large = sum(functions > 25 or fields > 15 for functions, fields, _, _ in found)
    print(f"{large} classes have more than 25 functions or 15 fields")

    print("\n== The ten folders with most files")
    folders = collections.Counter(str(pathlib.PurePath(name).parent) for name in texts)
    for folder, files in folders.most_common(10):
        print(f"{files:6}  {folder}")
    print(f"{sum(files > 40 for files in folders.values())} folders have more than 40 files")

    print("\n== Lines: production, tests, BUILD, docs")
    lines = collections.defaultdict(collections.Counter)
    for name, text in texts.items():
        folder = name.partition("/")[0] if "/" in name else "."
        for key in (folder, "all"):
            lines[key][kinds[name]] += text.count("\n")
    for folder in sorted(lines, key=lambda key: (key == "all", key)):
        row = (lines[folder][kind] for kind in ("production", "tests", "BUILD", "docs"))
        print("".join(f"{number:9}" for number in row), f" {folder}")

    print(f"\n== Lines of production C++ in copies of {DUPLICATE_LINES} lines and more")
    print(f"{duplicates(production):6}")

    print("\n== Production files that name one of each kind")
    for kind, pattern in KINDS.items():
        expression = re.compile(pattern)
        files = [
            name
            for name, text in texts.items()
            if kinds[name] in ("production", "tests") and expression.search(text)
        ]
        print(f"{len(files):6}  {kind}")


if __name__ == "__main__":
    main()
