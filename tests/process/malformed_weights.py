"""Malformed weights, in one file and in several."""

import json
import struct

from tests.process import inputs
from tests.process.inputs import floats
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
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9000\n",
    "the file itself",
    "a git-lfs pointer (a text in place of a file of 9000 bytes)",
    by="reading",
)
replaced_file(
    "weights-that-are-a-pickle",
    "weights",
    WEIGHTS,
    lambda: inputs.torch_saved({"transformer.wte.weight": [1.0]}),
    "a safetensors file",
    "an archive of PyTorch",
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
    "weights-in-float8",
    "F64, F32, F16 or BF16",
    "found F8_E4M3",
    transformer__ln_f__bias=("F8_E4M3", [8], bytes(8)),
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
weights_file(
    "weights-beyond-float32",
    "numbers that float32 can hold",
    "found 1e+300",
    transformer__ln_f__bias=("F64", [8], struct.pack("<8d", *[1e300] * 8)),
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
    "'transformer.ln_f.weight' appears twice",
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
    "a safetensors file",
    "text that begins with",
)
