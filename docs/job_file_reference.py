"""Makes the reference in docs/reference/job-file.md from proto/muster/v1/job_spec.proto.

    ~/.cache/muster/venv/bin/python docs/job_file_reference.py

rewrites the text between the page's two markers; the rest of the page is written by hand. Types,
defaults, ranges and needed fields come from the fields' options (proto/muster/v1/options.proto),
everything else from the comments. An alternative without a comment has the first sentence of its
message's comment."""

import dataclasses
import importlib.util
import os
import pathlib
import re
import sys
import tempfile

import grpc_tools
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).absolute().parents[1]
PROTO = "proto/muster/v1/job_spec.proto"
OPTIONS = "proto/muster/v1/options.proto"
PAGE = "docs/reference/job-file.md"
COMMAND = "~/.cache/muster/venv/bin/python docs/job_file_reference.py"
BEGIN = f"<!-- The reference: made from {PROTO} by `{COMMAND}`. -->"
END = "<!-- End of the reference. -->"

Proto = descriptor_pb2.FieldDescriptorProto
# The numbers of which a SourceCodeInfo.Location.path is made, as in descriptor.proto.
FILE_MESSAGE, MESSAGE_FIELD, MESSAGE_ENUM, ENUM_VALUE = 4, 2, 4, 2


@dataclasses.dataclass
class Field:
    name: str  # in the file
    stored: str  # in the message, and so in JSON
    type: str  # "whole number", "path", "one of"; of one element where it is a list
    message: str | None  # name of the message that it holds
    repeated: bool
    alternative: bool  # of a oneof
    comment: str
    values: list  # (name, comment) of an enum's values
    left_out: str  # what holds where it is left out; "" of an alternative
    allowed: str  # what is allowed; "" where its type says all


@dataclasses.dataclass
class Message:
    name: str
    comment: str
    fields: list


def run_protoc(*arguments):
    included = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"-I{included}", *map(str, arguments)])
    if code != 0:
        raise SystemExit(f"{' '.join(map(str, arguments))}: protoc ended with {code}")


def read_options(root, folder):
    """Returns the module with the extension for the fields' rules, which descriptor_pb2 knows from
    here on."""
    if "job_file_options" not in sys.modules:
        run_protoc(f"-I{root}", f"--python_out={folder}", OPTIONS)
        made = pathlib.Path(folder, OPTIONS).with_name("options_pb2.py")
        spec = importlib.util.spec_from_file_location("job_file_options", made)
        sys.modules["job_file_options"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["job_file_options"])
    return sys.modules["job_file_options"]


def read_schema(root):
    """Returns message name -> Message, for all messages in the proto file but map entries."""
    with tempfile.TemporaryDirectory() as folder:
        options = read_options(root, folder)
        out = pathlib.Path(folder, "set")
        run_protoc(f"-I{root}", f"--descriptor_set_out={out}", "--include_source_info", PROTO)
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
    schema = {
        message.name: Message(
            message.name,
            comments.get((FILE_MESSAGE, index), ""),
            [
                read_field(message, field, (FILE_MESSAGE, index), number, comments, options, enums)
                for number, field in enumerate(message.field)
            ],
        )
        for index, message in enumerate(file.message_type)
    }
    # Messages that are written as the list that is their only field.
    bare = {
        message.name: schema[message.name].fields[0]
        for message in file.message_type
        if len(message.field) == 1 and message.field[0].options.Extensions[options.rule].bare
    }
    for message in schema.values():
        message.fields[:] = [
            dataclasses.replace(field, type=f"list of {bare[field.message].type}", message=None)
            if field.message in bare
            else field
            for field in message.fields
        ]
    return {name: message for name, message in schema.items() if name not in bare}


def read_field(message, field, location, number, comments, options, enums):
    rule = field.options.Extensions[options.rule]
    name = field.type_name.rsplit(".", 1)[-1]
    is_map = name in {entry.name for entry in message.nested_type if entry.options.map_entry}
    values = []
    if field.type == Proto.TYPE_ENUM:
        # The enum of this message or of another one.
        place, enum = enums[".".join(field.type_name.rsplit(".", 2)[-2:])]
        for index, value in enumerate(enum.value):
            if value.number != 0:
                written = value.options.Extensions[options.written] or value.name.lower()
                values.append((written, comments.get((*place, ENUM_VALUE, index), "")))
    if is_map:
        kind = "mapping of texts"
    elif field.type == Proto.TYPE_MESSAGE:
        kind = "mapping"
    elif field.type == Proto.TYPE_ENUM:
        kind = " or ".join(f"`{value}`" for value, _ in values)
    elif field.type == Proto.TYPE_STRING:
        paths = (rule.INPUT_PATH, rule.OUTPUT_PATH, rule.FOLDER)
        kind = "path" if rule.text in paths else "text"
    elif field.type == Proto.TYPE_BOOL:
        kind = "`true` or `false`"
    elif field.type == Proto.TYPE_DOUBLE:
        kind = "number"
    else:
        kind = "whole number"
    return Field(
        name=rule.written or field.name,
        stored=field.name,
        type=kind,
        message=name if field.type == Proto.TYPE_MESSAGE and not is_map else None,
        repeated=field.label == Proto.LABEL_REPEATED and not is_map,
        alternative=field.HasField("oneof_index") and not field.proto3_optional,
        comment=comments.get((*location, MESSAGE_FIELD, number), ""),
        values=values,
        left_out=left_out(rule),
        allowed=allowed(rule, field.label == Proto.LABEL_REPEATED),
    )


def left_out(rule):
    if rule.needed:
        return "needed"
    if not rule.default:
        return rule.left_out
    if len(rule.default) > 1:
        return f"[{', '.join(rule.default)}]"
    return "its defaults" if rule.default[0] == "{}" else rule.default[0]


def allowed(rule, is_list):
    """Returns the allowed values of a rule as a sentence; for numbers as AllowedNumbers in
    common/jobspec/rules.h."""
    low, high = rule.HasField("at_least"), rule.HasField("at_most")
    above, below = rule.HasField("above"), rule.HasField("below")
    text = rule.allowed
    if low and high:
        text = f"{number(rule.at_least)} to {number(rule.at_most)}"
    elif low and below:
        text = f"from {number(rule.at_least)} to below {number(rule.below)}"
    elif low:
        text = f"{number(rule.at_least)} or more"
    elif above:
        text = f"above {number(rule.above)}"
        text += f" and below {number(rule.below)}" if below else ""
        text += f", at most {number(rule.at_most)}" if high else ""
    if text and is_list:
        text = f"each {text}"
    if rule.elements:
        text = f"{rule.elements} numbers, {text}" if text else f"{rule.elements} numbers"
    return text and f"{text[0].upper()}{text[1:]}."


def plural(kind):
    if kind.startswith("list of "):
        return f"lists of {plural(kind.removeprefix('list of '))}"
    return kind if " or " in kind else f"{kind}s"


def number(value):
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def sentences(comment):
    return re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<!et al\.)(?<=\.)\s+", comment)


def places(schema, name_of=lambda field: field.name):
    """Returns message name -> its places in the file ("stages[].fit"), depth first; only messages
    with keys."""
    found = {}

    def visit(name, place):
        if not schema[name].fields:
            return
        found.setdefault(name, []).append(place)
        for field in schema[name].fields:
            if field.message:
                step = name_of(field) + ("[]" if field.repeated else "")
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
    """Returns the fragment that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def prose(text):
    """Returns a comment's text as Markdown for a table: only `code` is formatting, and pages are
    links."""
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        part = re.sub(r"([*_<>|\[\]])", r"\\\1", parts[index])
        parts[index] = re.sub(r"docs/([\w\\/-]+\.md)", link, part)
    return "`".join(parts)


def link(match):
    page = pathlib.PurePosixPath("docs", match[1].replace("\\", ""))
    return f"[{page.name}]({os.path.relpath(page, pathlib.PurePosixPath(PAGE).parent)})"


def row(schema, headings, field):
    rule = field.comment
    if not rule and field.message:
        rule = sentences(schema[field.message].comment)[0]
    rule = " ".join(part for part in (rule, field.allowed) if part)
    key = f"`{field.name}`"
    if field.message in headings:
        key = f"[{key}](#{anchor(headings[field.message])})"
    kind = "nothing" if field.message and field.message not in headings else field.type
    if field.repeated:
        kind = f"list of {plural(kind)}"
    for value, comment in field.values:
        if comment:
            rule += f"<br>`{value}`: {comment}"
    rule = "<br>".join(prose(part) for part in rule.split("<br>")).removeprefix("<br>")
    return f"| {key} | {kind} | {prose(field.left_out)} | {rule} |"


def reference(root=ROOT):
    """Returns the text between the markers."""
    schema = read_schema(root)
    headings = {name: heading(where) for name, where in places(schema).items()}
    headings["JobSpec"] = "The job"
    lines = []
    for name, title in headings.items():
        message = schema[name]
        lines += ["", f"### {title}", ""]
        # The page itself describes the whole file.
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
    """Returns the whole page as it should be."""
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
