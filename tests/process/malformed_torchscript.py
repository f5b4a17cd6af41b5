"""Malformed TorchScript files."""

import io
import re
import zipfile

from tests.process import inputs
from tests.process.inputs import CLASSES, WIDTH
from tests.process.malformed_case import changed_file, changed_job, cut, first


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
    """Replaces the contents of the one member whose name has this ending: by bytes, or by a
    function of the old bytes."""

    def change(members):
        (name,) = [name for name in members if name.endswith(suffix)]
        new = contents(members[name]) if callable(contents) else contents
        return members | {name: new}

    return in_zip(change)


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
    lambda _: inputs.torch_saved({"weight": [1.0]}),
)
torchscript(
    "torchscript-that-is-a-pickle",
    "a TorchScript file (torch.jit.save)",
    "a Python pickle",
    lambda _: inputs.pickled(b"cos\nsystem\n(S'touch pwned'\ntR."),
)
torchscript(
    "torchscript-that-is-safetensors",
    "a TorchScript file (torch.jit.save)",
    "a safetensors file",
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
    member("/data.pkl", inputs.pickled(b"cos\nsystem\n(S'touch pwned'\ntR.")),
)
torchscript(
    "torchscript-pickle-huge-tuple",
    "cannot be loaded",
    "isObject()",
    member("/data.pkl", inputs.pickled(b"(" * 100000 + b"t" * 100000 + b".")),
)
torchscript(
    "torchscript-pickle-huge-text",
    "cannot be loaded",
    "Unexpected end of pickler archive",
    member("/data.pkl", inputs.pickled(b"X\xff\xff\xff\x0fabc.")),
)
torchscript(
    "torchscript-pickle-memo-missing",
    "cannot be loaded",
    "out of bounds access at 119",
    member("/data.pkl", inputs.pickled(b"h\x77.")),
)
torchscript(
    "torchscript-pickle-stack-empty",
    "cannot be loaded",
    "marks_ is empty",
    member("/data.pkl", inputs.pickled(b"ttttR.")),
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
    "torchscript-with-a-collective",
    "forward runs _c10d_functional::all_reduce, a collective of its own",
    "no process group",
    member(
        CODE,
        lambda code: re.sub(
            rb"return (.*)",
            rb'return ops._c10d_functional.all_reduce(\1, "sum", "0")',
            code,
            count=1,
        ),
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
    """name -> a module that torch.jit.script accepts and Muster must refuse."""
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
