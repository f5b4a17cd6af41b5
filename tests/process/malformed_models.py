"""What is wrong with weights, TorchScript files and plug-ins."""

import io
import json
import os
import re
import struct
import zipfile

from tests.process import inputs
from tests.process.inputs import CLASSES, WIDTH, floats
from tests.process.malformed_case import case, changed_file, changed_job, cut, first, replaced_file

NAN = float("nan")

# ---- Weights ----

WEIGHTS = "model.safetensors"
WTE = "transformer.wte.weight"


def weights_file(name, expected, found, **changes):
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    replaced_file(
        name,
        "weights",
        WEIGHTS,
        lambda: inputs.safetensors(inputs.gpt2_weights(**changes)),
        expected,
        found,
    )


changed_file(
    "weights-cut-in-data", "weights", WEIGHTS, cut(100), expected="data within", found="found ["
)
changed_file(
    "weights-cut-in-header",
    "weights",
    WEIGHTS,
    first(300),
    expected="a header of",
    found="found 292 bytes",
)
replaced_file(
    "weights-that-are-text",
    "weights",
    WEIGHTS,
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "a header of at most",
    "found a length of",
)
replaced_file(
    "weights-that-are-a-pickle",
    "weights",
    WEIGHTS,
    lambda: torch_saved({"transformer.wte.weight": [1.0]}),
    "a header of at most",
    "found a length of",
)
weights_file(
    "weights-one-missing", "missing", "transformer.ln_f.bias", transformer__ln_f__bias=None
)
weights_file(
    "weights-one-too-many",
    "unexpected",
    "transformer.h.1.ln_1.weight",
    transformer__h__1__ln_1__weight=("F32", [8], bytes(32)),
)
weights_file(
    "weights-of-another-shape",
    "expected the shape [32, 8]",
    "found [31, 8]",
    transformer__wte__weight=("F32", [31, 8], bytes(992)),
)
weights_file(
    "weights-transposed",
    "expected the shape [8, 24]",
    "found [24, 8]",
    transformer__h__0__attn__c_attn__weight=("F32", [24, 8], bytes(768)),
)
weights_file(
    "weights-in-float64",
    "F32, F16 or BF16",
    "found F64",
    transformer__ln_f__bias=("F64", [8], bytes(64)),
)
weights_file(
    "weights-in-int8", "F32, F16 or BF16", "found I8", transformer__ln_f__bias=("I8", [8], bytes(8))
)
weights_file(
    "weights-with-nan",
    "finite",
    "found nan",
    transformer__ln_f__bias=("F32", [8], floats([NAN] * 8)),
)
weights_file(
    "weights-tied-that-differ",
    "one parameter",
    "differ",
    lm_head__weight=("F32", [32, 8], floats([9.0] * 256)),
)
changed_job(
    "weights-of-another-model",
    "weights",
    {"model.llama": inputs.LLAMA, "model.gpt2": None},
    WEIGHTS,
    "unexpected 'transformer.wte.weight'",
    "more",
    by="session",
)


@case("weights-that-are-missing", "model.weights", "cannot read", "No such file", by="reading")
def weights_missing(folder):
    job = inputs.weights_job(folder)
    (folder / WEIGHTS).unlink()
    return job


# ---- Weights in several files ----

INDEX = "model.safetensors.index.json"
PART = "model-00001-of-00002.safetensors"


def index(name, expected, found, change, path=INDEX):
    """change(the index, folder) -> the index, or its text."""

    @case(name, path, expected, found)
    def build(folder):
        job = inputs.index_job(folder)
        good = json.loads((folder / INDEX).read_text())
        inputs.write_index(folder, change(good, folder))
        return job


def with_file(file, name=WTE):
    return lambda good, _: good | {"weight_map": good["weight_map"] | {name: file}}


def outside(good, folder):
    (folder.parent / "outside.safetensors").write_bytes((folder / PART).read_bytes())
    return with_file("../outside.safetensors")(good, folder)


def linked(good, folder):
    """A link inside the folder that leads out of it."""
    (folder.parent / "outside.safetensors").write_bytes((folder / PART).read_bytes())
    (folder / PART).unlink()
    os.symlink("../outside.safetensors", folder / PART)
    return good


index("index-file-above", "folder", "../outside.safetensors", outside)
index("index-file-absolute", "folder", "/etc/passwd", with_file("/etc/passwd"))
index(
    "index-file-in-a-subfolder-and-out",
    "folder",
    "a/../../",
    with_file("a/../../outside.safetensors"),
)
index("index-file-is-empty-text", "in the index's folder", 'found ""', with_file(""))
index("index-file-is-the-folder", "a regular file", "a directory", with_file("."))
index(
    "index-file-with-nul", "in the index's folder", "model\\u0000", with_file("model\0.safetensors")
)
index(
    "index-names-a-missing-file",
    "open",
    "No such file",
    with_file("model-00009.safetensors"),
    path="model-00009.safetensors",
)
index(
    "index-names-the-wrong-file",
    "expected in model-00002",
    "found in model-00001",
    with_file("model-00002-of-00002.safetensors"),
)
index(
    "index-names-no-such-tensor",
    "'no.such.tensor': expected in model-00001",
    "found nowhere",
    with_file(PART, "no.such.tensor"),
)
index("index-is-text", "JSON", "not a safetensors index", lambda good, _: "not JSON at all {")
index("index-is-cut", "JSON", "not a safetensors index", lambda good, _: json.dumps(good)[:200])
index("index-is-a-list", "an object with weight_map", "found array", lambda good, _: "[]")
index(
    "index-without-map",
    "an object with weight_map",
    "found one without",
    lambda good, _: {"metadata": {}},
)
index(
    "index-with-numbers",
    "expected a file's name",
    "found number",
    lambda good, _: good | {"weight_map": {WTE: 1}},
)
index(
    "index-with-an-empty-map",
    "from tensors to files",
    "found an empty one",
    lambda good, _: good | {"weight_map": {}},
)
index(
    "index-name-twice",
    "not a safetensors index",
    "'transformer.ln_f.weight' is there twice",
    lambda good, _: json.dumps(good).replace("transformer.ln_f.bias", "transformer.ln_f.weight"),
)
index("index-deep", "JSON", "not a safetensors index", lambda good, _: "[" * 100000)
changed_file("index-part-cut", "index", PART, cut(50), expected="data within", found="found [")
changed_file(
    "index-part-empty", "index", PART, first(0), expected="at least 8 bytes", found="found 0"
)
replaced_file(
    "index-part-is-the-index",
    "index",
    PART,
    b'{"weight_map": {}}',
    "a header of at most",
    "found a length of",
)

# ---- TorchScript ----


def torch_saved(value):
    import torch

    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def scripted(module):
    import torch

    out = io.BytesIO()
    torch.jit.save(torch.jit.script(module), out)
    return out.getvalue()


def in_zip(change):
    """change({name: bytes}) -> {name: bytes}, of the archive that torch.jit.save wrote."""

    def changed(data):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, contents in change(members).items():
                archive.writestr(name, contents)
        return out.getvalue()

    return changed


def member(suffix, contents):
    """The one member whose name ends so gets other contents: bytes, or a function of the old ones."""

    def change(members):
        (name,) = [name for name in members if name.endswith(suffix)]
        new = contents(members[name]) if callable(contents) else contents
        return members | {name: new}

    return in_zip(change)


def pickle_of(text):
    return b"\x80\x02" + text


MODEL = "model.pt"
CODE = "code/__torch__/torch/nn/modules/container.py"


def torchscript(name, expected, found, change):
    changed_file(name, "torchscript", MODEL, change, expected=expected, found=found)


torchscript("torchscript-cut", "failed reading zip archive", "cut off or damaged", cut(1000))
torchscript(
    "torchscript-first-bytes", "failed reading zip archive", "cut off or damaged", first(100)
)
torchscript(
    "torchscript-garbage",
    "a TorchScript file (torch.jit.save)",
    "something else",
    lambda _: inputs.some_bytes(5000),
)
torchscript(
    "torchscript-that-is-state",
    "a TorchScript file (torch.jit.save)",
    "an archive without code",
    lambda _: torch_saved({"weight": [1.0]}),
)
torchscript(
    "torchscript-that-is-a-pickle",
    "a TorchScript file (torch.jit.save)",
    "something else",
    lambda _: pickle_of(b"cos\nsystem\n(S'touch pwned'\ntR."),
)
torchscript(
    "torchscript-that-is-safetensors",
    "a TorchScript file (torch.jit.save)",
    "something else",
    lambda _: inputs.safetensors(inputs.rows()),
)
torchscript(
    "torchscript-other-zip",
    'Expected hasRecord("version")',
    "cannot be loaded",
    in_zip(lambda members: {"a/b": b"c"}),
)
torchscript(
    "torchscript-without-data",
    "failed locating file data.pkl",
    "cut off or damaged",
    in_zip(lambda members: {n: d for n, d in members.items() if "data.pkl" not in n}),
)
torchscript(
    "torchscript-pickle-of-garbage",
    "Expected PROTO opcode",
    "found 237",
    member("/data.pkl", inputs.some_bytes(300, seed=9)),
)
torchscript(
    "torchscript-pickle-cut",
    "cannot be loaded",
    "Unexpected end of pickler archive",
    member("/data.pkl", lambda data: data[: len(data) // 2]),
)
torchscript(
    "torchscript-pickle-calls-system",
    "cannot be loaded",
    "Unknown type name 'os.system'",
    member("/data.pkl", pickle_of(b"cos\nsystem\n(S'touch pwned'\ntR.")),
)
torchscript(
    "torchscript-pickle-huge-tuple",
    "cannot be loaded",
    "isObject()",
    member("/data.pkl", pickle_of(b"(" * 100000 + b"t" * 100000 + b".")),
)
torchscript(
    "torchscript-pickle-huge-text",
    "cannot be loaded",
    "Unexpected end of pickler archive",
    member("/data.pkl", pickle_of(b"X\xff\xff\xff\x0fabc.")),
)
torchscript(
    "torchscript-pickle-memo-missing",
    "cannot be loaded",
    "out of bounds access at 119",
    member("/data.pkl", pickle_of(b"h\x77.")),
)
torchscript(
    "torchscript-pickle-stack-empty",
    "cannot be loaded",
    "marks_ is empty",
    member("/data.pkl", pickle_of(b"ttttR.")),
)
torchscript(
    "torchscript-code-broken",
    "cannot be loaded",
    "expected ) but found 'arrow'",
    member(CODE, b"class Sequential(Module):\n  def forward(self, x: Tensor -> Tensor\n"),
)
torchscript(
    "torchscript-code-unknown-operator",
    "cannot be loaded",
    "Unknown builtin op: nobody::nothing",
    member(
        CODE, lambda code: re.sub(rb"return .*", b"return ops.nobody.nothing(input)", code, count=1)
    ),
)
torchscript(
    "torchscript-storage-cut",
    "a record of at least 80 bytes",
    "found 60",
    member("/data/0", lambda data: data[: len(data) // 2]),
)
torchscript(
    "torchscript-sizes-beyond-the-storage",
    "require a storage of at least 2524 bytes",
    "only has 80 bytes",
    member("/data.pkl", lambda data: data.replace(b"(K\x05K\x04t", b"(K\x7fK\x7ft")),
)
torchscript(
    "torchscript-stride-beyond-the-storage",
    "require a storage of at least 2048 bytes",
    "only has 80 bytes",
    member("/data.pkl", lambda data: data.replace(b"(K\x04K\x01t", b"(K\x7fK\x01t")),
)
torchscript(
    "torchscript-storage-missing",
    "failed locating file data/0",
    "cut off or damaged",
    in_zip(lambda members: {n: d for n, d in members.items() if not n.endswith("/data/0")}),
)


def modules():
    """name -> a module that torch.jit.script takes and Muster must not."""
    import torch
    from torch import nn

    class Raises(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.size(0) > 0:
                raise RuntimeError("never")
            return self.linear(x)

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(x), x

    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + y

    return {
        "no-parameters": nn.Sequential(nn.ReLU()),
        "float64": nn.Sequential(nn.Linear(WIDTH, CLASSES)).double(),
        "half": nn.Sequential(nn.Linear(WIDTH, CLASSES)).half(),
        "raises": Raises(),
        "gives-a-pair": Pair(),
        "takes-two": TwoInputs(),
        "other-classes": nn.Sequential(nn.Linear(WIDTH, CLASSES + 1)),
        "other-inputs": nn.Sequential(nn.Linear(WIDTH + 1, CLASSES)),
    }


def scripted_module(key, expected, found):
    changed_file(
        f"torchscript-{key}",
        "torchscript",
        MODEL,
        lambda _: scripted(modules()[key]),
        expected=expected,
        found=found,
    )


scripted_module("no-parameters", "parameters to train", "found none")
scripted_module("float64", "expected Float", "found Double")
scripted_module("half", "expected Float", "found Half")
scripted_module("raises", "a first small batch", "RuntimeError: never")
scripted_module("gives-a-pair", "expected a tensor", "found Tuple")
scripted_module("takes-two", "one argument", "found 2")
scripted_module("other-classes", "expected Float [2, 3]", "found Float [2, 4]")
scripted_module("other-inputs", "cannot be multiplied", "2x4 and 5x3")
changed_job(
    "torchscript-without-inputs",
    "torchscript",
    {"model.torchscript.inputs": None},
    "model.torchscript.inputs",
    "the shape of a row",
    "is missing",
)
changed_job(
    "torchscript-rows-and-tokens",
    "torchscript",
    {"model.torchscript.vocab_size": 8},
    "model.torchscript",
    "one of the two pairs",
    "found both",
)

# ---- Plug-ins ----

PLUGIN = "focal.so"


def plugin(name, expected, found, change, path=None):
    changed_file(name, "plugin", PLUGIN, change, expected=expected, found=found, path=path)


def stamped(old, new):
    assert len(old) == len(new)

    def change(data):
        assert data.count(old) >= 1, old
        return data.replace(old, new)

    return change


def for_another_machine(data):
    return data[:18] + struct.pack("<H", 183) + data[20:]  # e_machine: AArch64


plugin(
    "plugin-that-is-text", "shared object", "something else", lambda _: b"#!/bin/sh\ntouch pwned\n"
)
plugin("plugin-that-is-python", "shared object", "something else", lambda _: pickle_of(b"N."))
plugin("plugin-cut-in-header", "at least 64 bytes", "found 40", first(40))
plugin("plugin-cut-after-header", "is cut off: expected at least", "found 64", first(64))
plugin(
    "plugin-cut-in-half",
    "is cut off: expected at least",
    "found",
    lambda data: data[: len(data) // 2],
)
plugin("plugin-without-its-end", "is cut off: expected at least", "found", cut(16))
plugin("plugin-for-another-machine", "for this machine (ELF machine 62", "machine 183", for_another_machine)
plugin("plugin-for-32-bits", "64 bits)", "32 bits", lambda data: data[:4] + b"\1" + data[5:])
plugin(
    "plugin-for-another-interface",
    "this worker against '1'",
    "built against '9'",
    stamped(b"stamp:interface=1;", b"stamp:interface=9;"),
)
plugin(
    "plugin-for-another-torch",
    "this worker against '2.13.0'",
    "built against '2.14.0'",
    lambda data: re.sub(rb";torch=2\.13", b";torch=2.14", data),
)
plugin("plugin-for-another-abi", "ABI=1'", "ABI=0'", stamped(b"CXX11_ABI=1;", b"CXX11_ABI=0;"))
plugin(
    "plugin-without-stamp",
    "a Muster plug-in",
    "without MUSTER_PLUGIN",
    stamped(b"muster-plugin-stamp:", b"master-plugin-stamp:"),
)
plugin(
    "plugin-without-entry",
    "MUSTER_PLUGIN makes it",
    "no symbol muster_plugin_entry",
    stamped(b"muster_plugin_entry\0", b"master_plugin_entry\0"),
)
plugin(
    "plugin-that-is-another-library",
    "a Muster plug-in",
    "without MUSTER_PLUGIN",
    lambda _: open("/usr/lib/x86_64-linux-gnu/libz.so.1", "rb").read(),
)
changed_job(
    "plugin-unknown-model",
    "plugin",
    {"model.plugin.name": "vocal"},
    PLUGIN,
    "focal, plain",
    "no model 'vocal'",
    by="session",
)
changed_job(
    "plugin-unknown-option",
    "plugin",
    {"model.plugin.options.depth": "3"},
    PLUGIN,
    "allowed: classes",
    "unknown options: depth",
    by="session",
)
changed_job(
    "plugin-option-no-number",
    "plugin",
    {"model.plugin.options.width": "wide"},
    PLUGIN,
    "option width: expected an integer",
    "'wide'",
    by="session",
)
changed_job(
    "plugin-option-missing",
    "plugin",
    {"model.plugin.options.classes": None},
    PLUGIN,
    "option classes: expected an integer",
    "nothing",
    by="session",
)
changed_job(
    "plugin-without-name",
    "plugin",
    {"model.plugin.name": None},
    "model.plugin.name",
    "one of the plug-in's models",
    "is missing",
)
