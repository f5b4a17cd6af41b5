"""Makes the reference in docs/job-file.md from the comments of proto/muster/v1/job_spec.proto.

    ~/.cache/muster/venv/bin/python docs/job_file_reference.py

rewrites what stands between the page's two markers; the rest of the page is written by hand. How
comments are read: a field's comment is its rule. A sentence that begins with "Default", "Absent:"
or "Needed" goes to the table's column of defaults; a field without such a sentence is needed. An
alternative without a comment is described by the first sentence of its message's.
"""

import dataclasses
import pathlib
import re
import sys
import tempfile

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).absolute().parents[1]
PROTO = "proto/muster/v1/job_spec.proto"
PATH_TABLE = "common/jobspec/fields.cc"
PAGE = "docs/job-file.md"
COMMAND = "~/.cache/muster/venv/bin/python docs/job_file_reference.py"
BEGIN = f"<!-- The reference: made from {PROTO} by `{COMMAND}`. -->"
END = "<!-- End of the reference. -->"

Proto = descriptor_pb2.FieldDescriptorProto
# As in descriptor.proto: the numbers that a SourceCodeInfo.Location.path is made of.
FILE_MESSAGE, MESSAGE_FIELD, MESSAGE_ENUM, ENUM_VALUE = 4, 2, 4, 2


@dataclasses.dataclass
class Field:
    name: str
    type: str  # "whole number", "path", "one of"; of one element where it is a list
    message: str | None  # name of the message that it holds
    repeated: bool
    optional: bool  # has presence
    alternative: bool  # of a oneof
    comment: str
    values: list  # (name, comment) of an enum's values


@dataclasses.dataclass
class Message:
    name: str
    comment: str
    fields: list


def read_schema(root):
    """Message name -> Message, of everything in the proto file but map entries."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        code = protoc.main(
            ["protoc", f"-I{root}", f"--descriptor_set_out={out}", "--include_source_info", PROTO]
        )
        if code != 0:
            raise SystemExit(f"{PROTO}: protoc ended with {code}")
        file = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    comments = {
        tuple(location.path): " ".join(location.leading_comments.split())
        for location in file.source_code_info.location
    }
    enums = {
        f"{message.name}.{enum.name}": ((FILE_MESSAGE, index, MESSAGE_ENUM, number), enum)
        for index, message in enumerate(file.message_type)
        for number, enum in enumerate(message.enum_type)
    }
    paths = set(re.findall(r'\{"muster\.v1\.(\w+\.\w+)", PathUse', (root / PATH_TABLE).read_text()))
    return {
        message.name: Message(
            message.name,
            comments.get((FILE_MESSAGE, index), ""),
            [
                read_field(message, field, (FILE_MESSAGE, index), number, comments, paths, enums)
                for number, field in enumerate(message.field)
            ],
        )
        for index, message in enumerate(file.message_type)
    }


def read_field(message, field, location, number, comments, paths, enums):
    name = field.type_name.rsplit(".", 1)[-1]
    is_map = name in {entry.name for entry in message.nested_type if entry.options.map_entry}
    values = []
    if field.type == Proto.TYPE_ENUM:
        # Of this message or of another one.
        place, enum = enums[".".join(field.type_name.rsplit(".", 2)[-2:])]
        for index, value in enumerate(enum.value):
            if value.number != 0:
                values.append((value.name.lower(), comments.get((*place, ENUM_VALUE, index), "")))
    if is_map:
        kind = "mapping of texts"
    elif field.type == Proto.TYPE_MESSAGE:
        kind = "mapping"
    elif field.type == Proto.TYPE_ENUM:
        kind = " or ".join(f"`{value}`" for value, _ in values)
    elif field.type == Proto.TYPE_STRING:
        kind = "path" if f"{message.name}.{field.name}" in paths else "text"
    elif field.type == Proto.TYPE_BOOL:
        kind = "`true` or `false`"
    elif field.type == Proto.TYPE_DOUBLE:
        kind = "number"
    else:
        kind = "whole number"
    return Field(
        name=field.name,
        type=kind,
        message=name if field.type == Proto.TYPE_MESSAGE and not is_map else None,
        repeated=field.label == Proto.LABEL_REPEATED and not is_map,
        optional=field.proto3_optional or field.type == Proto.TYPE_MESSAGE,
        alternative=field.HasField("oneof_index") and not field.proto3_optional,
        comment=comments.get((*location, MESSAGE_FIELD, number), ""),
        values=values,
    )


def sentences(comment):
    return re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<!et al\.)(?<=\.)\s+", comment)


def split_comment(comment):
    """(rule, default): the sentences that say what happens when the key is left out, and the others."""
    rule, default = [], []
    for sentence in sentences(comment):
        if match := re.match(r"(?:Default:?|Absent:) (.*?)\.?$", sentence):
            default.append(match[1])
        elif re.match("Needed", sentence):
            default.append("n" + sentence.removesuffix(".")[1:])
        elif sentence:
            rule.append(sentence)
    return " ".join(rule), "; ".join(default)


def default_of(field):
    """What the table's column of defaults says; "" for an alternative."""
    _, default = split_comment(field.comment)
    return default or ("" if field.alternative else "needed")


def places(schema):
    """Message name -> the places in the file where it stands ("stages[].fit"), depth first; only those with keys."""
    found = {}

    def visit(name, place):
        if not schema[name].fields:
            return
        found.setdefault(name, []).append(place)
        for field in schema[name].fields:
            if field.message:
                step = field.name + ("[]" if field.repeated else "")
                visit(field.message, f"{place}.{step}" if place else step)

    visit("JobSpec", "")
    return found


def heading(place_list):
    """ "data.train, data.validate"; "data.*.tokens" where an inner part differs."""
    parts = [place.split(".") for place in place_list]
    if len(parts) > 1 and len({len(steps) for steps in parts}) == 1:
        if all(steps[:-1] == parts[0][:-1] for steps in parts):
            return ", ".join(f"`{place}`" for place in place_list)
        steps = [steps[0] if len(set(steps)) == 1 else "*" for steps in zip(*parts)]
        return f"`{'.'.join(steps)}`"
    return ", ".join(f"`{place}`" for place in place_list)


def anchor(text):
    """The fragment that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def prose(text):
    """A comment's text as Markdown in a table: nothing of it is formatting but `code`, and pages are links."""
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        part = re.sub(r"([*_<>|\[\]])", r"\\\1", parts[index])
        parts[index] = re.sub(r"docs/([\w\\-]+\.md)", link, part)
    return "`".join(parts)


def link(match):
    page = match[1].replace("\\", "")
    return f"[{page}]({page})"


def row(schema, headings, field):
    rule, _ = split_comment(field.comment)
    if not rule and field.message:
        rule = sentences(schema[field.message].comment)[0]
    key = f"`{field.name}`"
    if field.message in headings:
        key = f"[{key}](#{anchor(headings[field.message])})"
    kind = "nothing" if field.message and field.message not in headings else field.type
    if field.repeated:
        kind = f"list of {kind}s" if " or " not in kind else f"list of {kind}"
    for value, comment in field.values:
        if comment:
            rule += f"<br>`{value}`: {comment}"
    rule = "<br>".join(prose(part) for part in rule.split("<br>")).removeprefix("<br>")
    return f"| {key} | {kind} | {prose(default_of(field))} | {rule} |"


def reference(root=ROOT):
    """The text between the markers."""
    schema = read_schema(root)
    headings = {name: heading(where) for name, where in places(schema).items()}
    headings["JobSpec"] = "The job"
    lines = []
    for name, title in headings.items():
        message = schema[name]
        lines += ["", f"### {title}", ""]
        # The page itself says what the whole is.
        if message.comment and name != "JobSpec":
            lines += [prose(message.comment), ""]
        lines += table(schema, headings, message)
    return "\n".join(lines[1:]) + "\n"


def table(schema, headings, message):
    head = ["| key | type | left out | |", "|---|---|---|---|"]
    alternatives = [field for field in message.fields if field.alternative]
    others = [field for field in message.fields if not field.alternative]
    lines = []
    if alternatives:
        lines += ["Exactly one of:", "", "| key | type | |", "|---|---|---|"]
        lines += [
            row(schema, headings, field).replace(" |  | ", " | ", 1) for field in alternatives
        ]
    if alternatives and others:
        lines += ["", "and beside it:", ""]
    if others:
        lines += head + [row(schema, headings, field) for field in others]
    return lines


def page(root=ROOT):
    """The whole page as it should be."""
    text = (root / PAGE).read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{PAGE}: expected each of these lines once:\n{BEGIN}\n{END}")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{reference(root)}\n{END}{after}"


if __name__ == "__main__":
    if len(sys.argv) != 1:
        raise SystemExit(__doc__)
    (ROOT / PAGE).write_text(page())
