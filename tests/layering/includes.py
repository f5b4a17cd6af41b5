"""The owner target of each file, and the includes of the project's files."""

import collections
import dataclasses
import posixpath
import re

from tests.layering.sources import project_files, workspace

SOURCES = (".cc", ".h", ".hh")
HEADERS = (".h", ".hh")
# Not compiled by a target: LibTorch's BUILD file takes them (libtorch.BUILD).
NO_TARGET = ("third_party/torch/lean/",)

# Libraries of others, by how what is included of them begins -> the target that stands for them.
LIBRARIES = {
    "ATen/": "@torch//",
    "CLI/": "//third_party/system:cli11",
    "absl/": "//third_party/system:absl",
    "c10/": "@torch//",
    "caffe2/": "@torch//",
    "curl/": "//third_party/system:curl",
    "gmock/": "//third_party/system:gtest",
    "google/protobuf/": "//third_party/system:protobuf",
    "grpc/": "//third_party/system:grpc",
    "grpcpp/": "//third_party/system:grpc",
    "gtest/": "//third_party/system:gtest",
    "nlohmann/": "//third_party/system:json",
    "openssl/": "//third_party/system:openssl",
    "pcre2.h": "//third_party/system:pcre2",
    "prometheus/": "//third_party/system:prometheus",
    "spdlog/": "//third_party/system:spdlog",
    "sqlite3.h": "//third_party/system:sqlite3",
    "torch/": "@torch//",
    "utf8proc.h": "//third_party/system:utf8proc",
    "xxhash.h": "//third_party/system:xxhash",
    "yaml-cpp/": "//third_party/system:yaml_cpp",
    "zlib.h": "//third_party/system:zlib",
}
# Folders of the operating system's headers; those of C and C++ lie in no folder.
SYSTEM_FOLDERS = ("arpa/", "linux/", "netinet/", "sanitizer/", "sys/")


@dataclasses.dataclass
class Include:
    file: str
    line: int
    # The path from the checkout's root, for the project's own headers.
    header: str

    def __str__(self):
        return f'{self.file}:{self.line}: #include "{self.header}"'


def path_of(label):
    """The path of a file's label from the checkout's root."""
    return label.removeprefix("//").replace(":", "/").lstrip("/")


def libraries_of(path):
    """The targets that stand for the library of which `#include <path>` is."""
    return [LIBRARIES[start] for start in LIBRARIES if path.startswith(start)]


def reachable_labels(targets, start):
    """All direct and indirect dependencies with which a target is compiled and linked, without
    those that only its precompiled header has."""
    seen, todo = set(), [start]
    while todo:
        target = targets.get(todo.pop())
        for label in target.labels("srcs", "hdrs", "deps") if target else ():
            if label not in seen and not label.startswith("//third_party/precompiled:"):
                seen.add(label)
                todo.append(label)
    return seen


class Sources:
    """The files of `targets`; `text` gives a file's text."""

    def __init__(self, targets, text=lambda name: (workspace() / name).read_text()):
        self.targets = targets
        self.text = text
        # Header or source file -> the targets that have it in srcs, hdrs or textual_hdrs.
        self.owners = collections.defaultdict(list)
        # Source file that is generated -> the source files that were put into it (muster_tests).
        self.made_of = {}
        generated = set()
        folders = {""}
        for target in targets.values():
            outs = [path_of(label) for label in target.labels("outs")]
            generated |= set(outs)
            srcs = [path_of(label) for label in target.labels("srcs")]
            if target.rule == "genrule" and srcs and all(name.endswith(".cc") for name in srcs):
                self.made_of |= {out: srcs for out in outs}
        for target in targets.values():
            if not target.rule.startswith("cc_"):
                continue
            for path in self.files_of(target):
                self.owners[path].append(target)
            for folder in target.attributes.get("includes") or []:
                folders.add(posixpath.normpath(posixpath.join(target.package, folder)) + "/")
        self.files = set(self.owners) | generated
        self.generated = generated
        self.folders = sorted(folders)

    def header(self, path):
        """The project's file that `#include "path"` reads; None if it is not a file of the
        project."""
        for folder in self.folders:
            if folder + path in self.files:
                return folder + path
        return None

    def all_includes(self, file):
        """The includes of a file, as written in it."""
        if file in self.generated:
            return
        for number, line in enumerate(self.text(file).splitlines(), 1):
            if match := re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line):
                yield Include(file, number, match[1])

    def includes(self, file):
        """The files of the project that a file includes."""
        for include in self.all_includes(file):
            if header := self.header(include.header):
                yield Include(file, include.line, header)

    def files_of(self, target):
        labels = target.labels("srcs", "hdrs", "textual_hdrs")
        paths = [path for path in map(path_of, labels) if path.endswith(SOURCES)]
        return [one for path in paths for one in self.made_of.get(path, [path])]

    def headers_of(self, target):
        """The headers that a target offers to targets that depend on it."""
        found = {path for path in map(path_of, target.labels("hdrs")) if path.endswith(HEADERS)}
        # A target without files of its own stands for those that it depends on.
        if not target.labels("srcs", "hdrs"):
            for dep in target.labels("deps"):
                if dep in self.targets:
                    found |= self.headers_of(self.targets[dep])
        return found

    def compiled(self):
        """The targets that are compiled. Those of third_party are below the libraries."""
        return [
            target
            for target in self.targets.values()
            if target.rule.startswith("cc_") and not target.package.startswith("third_party")
        ]

    def undeclared(self):
        """(include, target) where neither the target nor a direct dep has the header."""
        for target in self.compiled():
            own = set(self.files_of(target))
            reachable = own.union(
                *(
                    self.headers_of(self.targets[dep])
                    for dep in target.labels("deps")
                    if dep in self.targets
                )
            )
            for file in sorted(own):
                for include in self.includes(file):
                    if include.header not in reachable:
                        yield include, target

    def undeclared_libraries(self):
        """(include, target, library) where the target does not depend on the library, directly or
        indirectly; the library is None if LIBRARIES has none for the include."""
        for target in self.compiled():
            reachable = reachable_labels(self.targets, target.label)
            for file in self.files_of(target):
                for include in self.all_includes(file):
                    path = include.header
                    if self.header(path):
                        continue
                    named = libraries_of(path)
                    if not named and "/" in path and not path.startswith(SYSTEM_FOLDERS):
                        yield include, target, None
                    for library in named:
                        if not any(label.startswith(library) for label in reachable):
                            yield include, target, library

    def unused(self):
        """(target, dep) where the dep has headers and no file of the target includes any."""
        for target in self.compiled():
            files = self.files_of(target)
            # The includes of generated code are not known. Files of muster_library only
            # include the target's own files.
            generated = self.generated.intersection(files)
            if not files or any(file.endswith(HEADERS) for file in generated):
                continue
            included = {include.header for file in files for include in self.includes(file)}
            paths = {include.header for file in files for include in self.all_includes(file)}
            libraries = {library for path in paths for library in libraries_of(path)}
            for dep in target.labels("deps"):
                headers = self.headers_of(self.targets[dep]) if dep in self.targets else set()
                if dep.startswith(("//third_party/", "@")):
                    library = "@torch//" if dep.startswith("@torch//") else dep
                    if library in set(LIBRARIES.values()) - libraries:
                        yield target, dep
                elif headers and not headers & included:
                    yield target, dep

    def cycle(self):
        """Files that include one another in a cycle; None if there is none."""
        graph = collections.defaultdict(set)
        for file in sorted(self.owners):
            for include in self.includes(file):
                graph[file].add(include.header)
        done, path = set(), []

        def visit(name):
            if name in path:
                return path[path.index(name) :] + [name]
            if name in done:
                return None
            path.append(name)
            for other in sorted(graph[name]):
                if found := visit(other):
                    return found
            done.add(path.pop())
            return None

        return next(filter(None, map(visit, sorted(graph))), None)


def source_files():
    """All C++ files of the checkout; each must belong to a target."""
    return [
        name
        for name in project_files()
        if name.endswith(SOURCES) and not name.startswith(NO_TARGET)
    ]
