"""Adds missing deps to the BUILD files, and removes deps that no file needs, by the includes of
each target: `python3 -m tests.layering.fix` prints the lines to write; with --write it writes
them."""

import argparse
import ast
import dataclasses
import sys

from tests.layering.build_files import Target, full_label, project_targets
from tests.layering.includes import Include, Sources
from tests.layering.sources import workspace


@dataclasses.dataclass
class Change:
    """One line of the deps of a target."""

    target: Target
    dep: str
    # The include that needs the dep. None: no include needs the dep, and the line is removed.
    include: Include | None = None

    @property
    def written(self):
        """The dep as its BUILD file names it."""
        package, _, name = self.dep.partition(":")
        if package == f"//{self.target.package}":
            return ":" + name
        if package == f"@{name}//":
            return "@" + name
        return package if package.endswith("/" + name) else self.dep

    def __str__(self):
        of = f"the deps of {self.target.label}"
        if self.include is None:
            return f'{self.target.where}: take out of {of}: "{self.written}",'
        return f'{self.target.where}: add to {of}: "{self.written}",  # {self.include}'


def is_visible(target, package):
    for entry in target.visibility:
        of, _, which = entry.removeprefix("//").partition(":")
        if entry == "//visibility:public" or of == package:
            return True
        if which == "__subpackages__" and (not of or package.startswith(of + "/")):
            return True
    return target.package == package


def offering(sources, header, package):
    """Returns the label of a target that gives a header to the targets of a package: the header's
    owner, or a visible target in place of the owner. None if no target offers the header."""
    offers = [one for one in sources.targets.values() if header in sources.headers_of(one)]
    offers.sort(key=lambda one: one not in sources.owners[header])
    visible = [one for one in offers if is_visible(one, package)]
    return next((one.label for one in visible + offers), None)


def changes(sources):
    """Every change that the BUILD files need, without two of one line."""
    found = {}
    for include, target in sources.undeclared():
        if dep := offering(sources, include.header, target.package):
            found.setdefault((target.label, dep), Change(target, dep, include))
    for include, target, library in sources.undeclared_libraries():
        if library:
            dep = library + ":torch" if library == "@torch//" else library
            found.setdefault((target.label, dep), Change(target, dep, include))
    for target, dep in sources.unused():
        found[target.label, dep] = Change(target, dep)
    return sorted(found.values(), key=str)


def unknown(sources):
    """The messages about includes that no dep can bring."""
    for include, target in sources.undeclared():
        if not offering(sources, include.header, target.package):
            yield f"{include}: no target has this header in hdrs"
    for include, _, library in sources.undeclared_libraries():
        if not library:
            yield f"{include}: say in LIBRARIES of tests/layering/includes.py whose header this is"


def sort_key(label):
    """Labels of the same package stand first, those of other repositories last."""
    phase = 1 if label.startswith(":") else 3 if label.startswith("@") else 2
    return phase, label.replace(":", ".").split(".")


def keyword(call, name):
    return next((one.value for one in call.keywords if one.arg == name), None)


def named_lists(comprehension, name):
    """(name of the target, its list) of `[rule(name = ...) for key, deps in {"a": [...]}.items()]`,
    where `name` is the expression that has the key in it."""
    loop = comprehension.generators[0]
    cases = getattr(getattr(loop.iter, "func", None), "value", None)
    if isinstance(cases, ast.Dict) and isinstance(loop.target, ast.Tuple):
        made = compile(ast.Expression(name), "BUILD", "eval")
        for key, deps in zip(cases.keys, cases.values, strict=True):
            yield eval(made, {loop.target.elts[0].id: key.value}), deps


def terms(node):
    """The lists of a sum."""
    if isinstance(node, ast.BinOp):
        return terms(node.left) + terms(node.right)
    return [node] if isinstance(node, ast.List) else []


def places(text, target):
    """(the call that makes a target, the lists of its own deps) in the text of its BUILD file."""
    tree = ast.parse(text)
    around = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ListComp):
            around[node.elt] = node
        if isinstance(node, ast.Call) and node.lineno == target.line and keyword(node, "name"):
            if node not in around:
                return node, terms(keyword(node, "deps"))
            named = dict(named_lists(around[node], keyword(node, "name")))
            return node, terms(named.get(target.attributes["name"]))
    return None, []


def rows_of(lines, node):
    """Each label of a list with its lines, which are the comments above it and its own, and the
    lines below the last label. None if a label has no line of its own."""
    if not all(isinstance(one, ast.Constant) for one in node.elts):
        return None
    if node.lineno == node.end_lineno:
        return [(one.value, [f'"{one.value}",']) for one in node.elts], []
    rows, taken = [], node.lineno
    for one in node.elts:
        rows.append((one.value, [line.strip() for line in lines[taken : one.lineno]]))
        taken = one.lineno
    below = [line.strip() for line in lines[taken : node.end_lineno - 1]]
    return (rows, below) if all(row for _, row in rows) else None


def with_rows(lines, node, inside):
    """The lines of a file in which a list has other rows."""
    start, end = node.lineno - 1, node.end_lineno - 1
    before, after = lines[start][: node.col_offset], lines[end][node.end_col_offset :]
    if len(inside) > 1:
        indent = " " * (len(before) - len(before.lstrip()))
        made = [before + "[", *(f"{indent}    {line}" for line in inside), indent + "]" + after]
    else:
        made = [before + "[" + "".join(inside).removesuffix(",") + "]" + after]
    if made[0].strip() == "deps = [],":
        made = []
    return lines[:start] + made + lines[end + 1 :]


def with_list(lines, node, change):
    """The lines of a file after a change of one list; comments stay. None if the list does not have
    the dep that goes, or is written in another way."""
    rows, below = rows_of(lines, node) or ([], [])
    if change.include:
        if node.elts and not rows:
            return None
        greater = [sort_key(label) > sort_key(change.written) for label, _ in rows] + [True]
        rows.insert(greater.index(True), (change.written, [f'"{change.written}",']))
    else:
        fits = [full_label(change.target.package, label) == change.dep for label, _ in rows]
        if True not in fits:
            return None
        at = fits.index(True)
        rows[at] = (None, rows[at][1][:-1])
    return with_rows(lines, node, [line for _, row in rows for line in row] + below)


def edited(text, change):
    """The text of a BUILD file after a change; None if somebody has to make it by hand."""
    lines = text.split("\n")
    call, own = places(text, change.target)
    if call is None:
        return None
    if change.include and not own:
        if keyword(call, "deps") or call.lineno == call.end_lineno:
            return None
        close = lines[call.end_lineno - 1]
        indent = " " * (len(close) - len(close.lstrip()) + 4)
        lines.insert(call.end_lineno - 1, f'{indent}deps = ["{change.written}"],')
        return "\n".join(lines)
    made = (with_list(lines, node, change) for node in own)
    return next(("\n".join(after) for after in made if after is not None), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="change the BUILD files")
    write = parser.parse_args().write
    sources = Sources(project_targets())
    print("".join(f"{line}\n" for line in unknown(sources)), end="")
    todo = changes(sources)
    # From below: what is written moves the lines of no other target.
    for change in sorted(todo, key=lambda one: (one.target.package, -one.target.line)):
        file = workspace() / change.target.package / "BUILD"
        text = edited(file.read_text(), change) if write else None
        if text is None:
            print(f"{change}" + (" (by hand)" if write else ""))
        else:
            file.write_text(text)
    return 1 if todo and not write else 0


if __name__ == "__main__":
    sys.exit(main())
