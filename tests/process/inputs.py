"""Small valid inputs of every kind, and jobs that train on them for one pass.

The formats are written by hand, so that they can be broken.
"""

import gzip
import io
import json
import math
import random
import shutil
import struct

from tests.bazel import runfile

CONTEXT = 8
VOCABULARY = 32
WIDTH = 4  # numbers per row
CLASSES = 3
IMAGE = [1, 8, 8]
ROWS = 12

GPT2 = {"vocab_size": VOCABULARY, "context": CONTEXT, "layers": 1, "heads": 2, "width": 8}
LLAMA = GPT2 | {"heads": 4, "kv_heads": 2, "width": 16, "inner": 24}
MLP = {"inputs": WIDTH, "hidden": [5], "classes": CLASSES}
CONVNET = {"inputs": IMAGE, "widths": [4], "blocks": [1], "classes": CLASSES}


def job(model, train, **changes):
    return {
        "name": "case",
        "world_size": 1,
        "model": model,
        "data": {"train": train},
        "optimizer": {"sgd": {"lr": 0.1}},
        "batch": {"per_rank": 2, "order": "sequential"},
        "stages": [{"fit": {"steps": math.ceil(ROWS / 2)}}],
    } | changes


# ---- Formats ----


def tokens(values, size=2):
    return struct.pack(f"<{len(values)}{ {2: 'H', 4: 'I'}[size] }", *values)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def int64s(values):
    return struct.pack(f"<{len(values)}q", *values)


def safetensors(tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return safetensors_file(json.dumps(header), b"".join(data for _, _, data in tensors.values()))


def safetensors_file(header, data):
    """A file with any header, valid or not."""
    text = header.encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def idx(shape, data, kind=0x08):
    return struct.pack(">HBB", 0, kind, len(shape)) + struct.pack(f">{len(shape)}I", *shape) + data


def npy(descr, shape, data, fortran=False, version=(1, 0)):
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {tuple(shape)!r}, }}"
    return npy_file(header, data, version)


def npy_file(header, data, version=(1, 0)):
    text = header.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text + data


def gzipped(data):
    return gzip.compress(data, mtime=0)


def pickled(text):
    return b"\x80\x02" + text


def torch_saved(value):
    import torch

    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


# ---- Contents ----


def some_tokens(count=200, seed=1, below=VOCABULARY):
    source = random.Random(seed)
    return [source.randrange(below) for _ in range(count)]


def some_floats(count, seed=2):
    source = random.Random(seed)
    return [source.uniform(-1, 1) for _ in range(count)]


def some_bytes(count, seed=3, below=256):
    source = random.Random(seed)
    return bytes(source.randrange(below) for _ in range(count))


def labels(count=ROWS):
    return [index % CLASSES for index in range(count)]


def rows(**changes):
    """The tensors of a valid safetensors data set; None removes one."""
    good = {
        "inputs": ("F32", [ROWS, WIDTH], floats(some_floats(ROWS * WIDTH))),
        "labels": ("I64", [ROWS], int64s(labels())),
    }
    return {name: tensor for name, tensor in (good | changes).items() if tensor}


def images(count=ROWS, shape=(8, 8)):
    return idx([count, *shape], some_bytes(count * math.prod(shape)))


def image_labels(count=ROWS):
    return idx([count], bytes(labels(count)))


def gpt2_weights(**changes):
    """name -> tensor of a GPT-2 of GPT2's sizes; None removes one."""
    width, inner = GPT2["width"], 4 * GPT2["width"]
    shapes = {
        "transformer.wte.weight": [VOCABULARY, width],
        "transformer.wpe.weight": [CONTEXT, width],
        "transformer.h.0.ln_1.weight": [width],
        "transformer.h.0.ln_1.bias": [width],
        "transformer.h.0.attn.c_attn.weight": [width, 3 * width],
        "transformer.h.0.attn.c_attn.bias": [3 * width],
        "transformer.h.0.attn.c_proj.weight": [width, width],
        "transformer.h.0.attn.c_proj.bias": [width],
        "transformer.h.0.ln_2.weight": [width],
        "transformer.h.0.ln_2.bias": [width],
        "transformer.h.0.mlp.c_fc.weight": [width, inner],
        "transformer.h.0.mlp.c_fc.bias": [inner],
        "transformer.h.0.mlp.c_proj.weight": [inner, width],
        "transformer.h.0.mlp.c_proj.bias": [width],
        "transformer.ln_f.weight": [width],
        "transformer.ln_f.bias": [width],
    }
    good = {
        name: ("F32", shape, floats(some_floats(math.prod(shape), seed)))
        for seed, (name, shape) in enumerate(shapes.items())
    }
    return {name: tensor for name, tensor in (good | changes).items() if tensor}


def sharded(folder, tensors, parts=2):
    """Writes tensors as `parts` files with an index, as transformers does; returns the index as a
    dict."""
    names = list(tensors)
    weight_map = {}
    for part in range(parts):
        file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        mine = names[part::parts]
        (folder / file).write_bytes(
            safetensors({name: tensors[name] for name in mine}, {"format": "pt"})
        )
        weight_map |= {name: file for name in mine}
    total = sum(len(data) for _, _, data in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_index(folder, index)
    return index


def write_index(folder, index):
    text = index if isinstance(index, str) else json.dumps(index)
    (folder / "model.safetensors.index.json").write_text(text)


# ---- Good jobs: each writes its files into a folder and returns the job ----


def tokens_job(folder, **changes):
    (folder / "train.bin").write_bytes(tokens(some_tokens()))
    return job({"gpt2": GPT2}, {"tokens": {"path": "train.bin"}}, **changes)


def llama_job(folder, **changes):
    (folder / "train.bin").write_bytes(tokens(some_tokens()))
    return job({"llama": LLAMA}, {"tokens": {"path": "train.bin"}}, **changes)


def rows_job(folder, **changes):
    (folder / "rows.safetensors").write_bytes(safetensors(rows()))
    return job({"mlp": MLP}, {"safetensors": {"path": "rows.safetensors"}}, **changes)


def npy_job(folder, **changes):
    (folder / "inputs.npy").write_bytes(
        npy("<f4", [ROWS, WIDTH], floats(some_floats(ROWS * WIDTH)))
    )
    (folder / "labels.npy").write_bytes(npy("<i8", [ROWS], int64s(labels())))
    return job({"mlp": MLP}, {"npy": {"inputs": "inputs.npy", "labels": "labels.npy"}}, **changes)


def idx_job(folder, **changes):
    (folder / "images.idx").write_bytes(images())
    (folder / "labels.idx").write_bytes(image_labels())
    return job(
        {"convnet": CONVNET}, {"idx": {"images": "images.idx", "labels": "labels.idx"}}, **changes
    )


def gzip_job(folder, **changes):
    (folder / "images.gz").write_bytes(gzipped(images()))
    (folder / "labels.gz").write_bytes(gzipped(image_labels()))
    return job(
        {"convnet": CONVNET}, {"idx": {"images": "images.gz", "labels": "labels.gz"}}, **changes
    )


def weights_job(folder, **changes):
    (folder / "model.safetensors").write_bytes(safetensors(gpt2_weights(), {"format": "pt"}))
    good = tokens_job(folder, **changes)
    return good | {"model": good["model"] | {"weights": "model.safetensors"}}


def index_job(folder, **changes):
    sharded(folder, gpt2_weights())
    good = tokens_job(folder, **changes)
    return good | {"model": good["model"] | {"weights": "model.safetensors.index.json"}}


def torchscript_job(folder, **changes):
    import torch

    torch.manual_seed(1)
    module = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 5), torch.nn.ReLU(), torch.nn.Linear(5, CLASSES)
    )
    torch.jit.save(torch.jit.script(module), folder / "model.pt")
    good = rows_job(folder, **changes)
    return good | {
        "model": {"torchscript": {"path": "model.pt", "inputs": [WIDTH], "classes": CLASSES}}
    }


def plugin_job(folder, **changes):
    shutil.copy(runfile("examples/plugin/focal.so"), folder / "focal.so")
    (folder / "focal.so").chmod(0o644)
    good = rows_job(folder, **changes)
    options = {"inputs": str(WIDTH), "width": "5", "classes": str(CLASSES)}
    return good | {"model": {"plugin": {"path": "focal.so", "name": "focal", "options": options}}}


GOOD = {
    "tokens": tokens_job,
    "llama": llama_job,
    "rows": rows_job,
    "npy": npy_job,
    "idx": idx_job,
    "gzip": gzip_job,
    "weights": weights_job,
    "index": index_job,
    "torchscript": torchscript_job,
    "plugin": plugin_job,
}
