"""One checkpoint and its tensors (muster.checkpoints)."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy
import xxhash

from muster.errors import DataLoss, FailedPrecondition, NotFound

if TYPE_CHECKING:
    import torch

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

_FORMAT, _NEWEST = "muster-checkpoint", 3
_HASH = re.compile(rb'("manifest_xxh3_128": ")([0-9a-f]{32})"')
_TYPES: dict[str, numpy.dtype[Any]] = {"F32": numpy.dtype("<f4"), "I64": numpy.dtype("<i8")}
# Slots that are not part of the optimizer's state.
_OTHERS = ("param", "buffer", "ema", "scaler")


@dataclasses.dataclass(frozen=True)
class _Piece:
    """The elements [begin, end) of a tensor, which lie in a file from the byte `offset` on."""

    begin: int
    end: int
    file: str
    offset: int


class Tensor:
    """One tensor of a checkpoint. numpy() and torch() read the tensor; nothing is kept in
    memory."""

    def __init__(self, checkpoint: Checkpoint, name: str, shape: tuple[int, ...], dtype: str):
        self._checkpoint = checkpoint
        self._pieces: list[_Piece] = []
        # The name in the checkpoint: "param/transformer.wte.weight".
        self.name = name
        self.shape = shape
        self.dtype = _TYPES[dtype]

    def __repr__(self) -> str:
        return f"<muster Tensor {self.name} {list(self.shape)} {self.dtype.name}>"

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    def numpy(self) -> Array:
        """Returns a new array. DataLoss: the checkpoint is damaged. NotFound: a file is missing."""
        out = numpy.empty(self.size, self.dtype)
        filled = 0
        for piece in sorted(self._pieces, key=lambda one: (one.begin, one.end)):
            if piece.begin != filled or piece.end < piece.begin:
                break
            count = (piece.end - piece.begin) * self.dtype.itemsize
            content = self._checkpoint._read(piece.file, piece.offset, count)
            out[piece.begin : piece.end] = numpy.frombuffer(content, self.dtype)
            filled = piece.end
        if filled != self.size:
            raise self._checkpoint._damaged(f"the pieces of {self.name} do not cover it")
        return out.reshape(self.shape)

    def torch(self) -> torch.Tensor:
        """Returns a new tensor on the CPU. Errors are those of numpy()."""
        import torch

        return torch.from_numpy(self.numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)


class Checkpoint:
    """A complete checkpoint: the directory step-N-gG of a job. Made by open()."""

    def __init__(self, path: pathlib.Path, manifest: dict[str, Any]):
        self.path = path
        # The contents of MANIFEST.json (docs/reference/checkpoint-format.md).
        self.manifest = manifest
        self.job: str = manifest["job"]
        # Optimizer steps done.
        self.step: int = manifest["step"]
        self.generation: int = manifest["generation"]
        # The parameters by name.
        self.parameters: dict[str, Tensor] = {}
        # Tensors of the model without a gradient, such as the statistics of BatchNorm.
        self.buffers: dict[str, Tensor] = {}
        # The averages of parameters, if the job keeps them.
        self.averages: dict[str, Tensor] = {}
        # The state of each parameter that was ever trained. With AdamW: {"exp_avg": ...,
        # "exp_avg_sq": ..., "step": ...}; docs/reference/checkpoint-format.md has the other
        # optimizers.
        self.optimizer_state: dict[str, dict[str, Tensor]] = {}
        self._files = {one["name"]: one for one in manifest["files"]}
        self._block_bytes: int = manifest["block_bytes"]
        tensors: dict[tuple[str, str], Tensor] = {}
        for piece in manifest["pieces"]:
            slot, name = piece["slot"], piece["parameter"]
            tensor = tensors.get((slot, name))
            if tensor is None:
                tensor = tensors[slot, name] = Tensor(
                    self, f"{slot}/{name}", tuple(piece["shape"]), piece.get("dtype", "F32")
                )
                self._group(slot, name)[name if slot in _OTHERS else slot] = tensor
            tensor._pieces.append(
                _Piece(piece["begin"], piece["end"], piece["file"], piece["offset"])
            )

    def __repr__(self) -> str:
        return f"<muster Checkpoint of job {self.job} after {self.step} steps at {self.path}>"

    def _group(self, slot: str, name: str) -> dict[str, Tensor]:
        groups = {"param": self.parameters, "buffer": self.buffers, "ema": self.averages}
        if slot in groups:
            return groups[slot]
        if slot == "scaler":
            return {}  # in the manifest
        return self.optimizer_state.setdefault(name, {})

    def verify(self) -> None:
        """Reads all files and checks every byte. DataLoss: a file is damaged. NotFound: a file is
        missing."""
        for name, file in self._files.items():
            for _ in self._blocks(name, 0, len(file["blocks_xxh3_128"]) - 1):
                pass

    def _damaged(self, why: str) -> DataLoss:
        return DataLoss(f"{self.path} is damaged: {why}")

    def _read(self, name: str, offset: int, count: int) -> bytes:
        """Returns bytes of a file, after a check of all blocks that contain these bytes."""
        file = self._files.get(name)
        if file is None or "/" in name or offset < 0 or offset + count > file["size"]:
            raise self._damaged(f"{name} has no bytes {offset} to {offset + count}")
        if count == 0:
            return b""
        first = offset // self._block_bytes
        last = (offset + count - 1) // self._block_bytes
        begin = offset - first * self._block_bytes
        return b"".join(self._blocks(name, first, last))[begin : begin + count]

    def _blocks(self, name: str, first: int, last: int) -> Iterator[bytes]:
        """Returns the checked blocks of a file from `first` to `last`."""
        path = self.path / name
        file = self._files[name]
        try:
            with open(path, "rb") as source:
                if os.fstat(source.fileno()).st_size != file["size"]:
                    raise self._damaged(f"{name} does not have {file['size']} bytes")
                source.seek(first * self._block_bytes)
                for index in range(first, last + 1):
                    content = source.read(self._block_bytes)
                    if xxhash.xxh3_128_hexdigest(content) != file["blocks_xxh3_128"][index]:
                        raise self._damaged(f"{name}: the hash of block {index} is wrong")
                    yield content
        except FileNotFoundError as error:
            raise NotFound(f"{path} is missing") from error


def read(directory: str | os.PathLike[str]) -> Checkpoint:
    """Does the work of muster.checkpoints.open, with the same errors."""
    path = pathlib.Path(directory)
    manifest_path = path / "MANIFEST.json"
    try:
        text = manifest_path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"{manifest_path} is missing: {path} is no complete checkpoint "
            "(a directory such as checkpoints/JOB/step-200-g1)"
        ) from error

    def damaged(why: str) -> DataLoss:
        return DataLoss(f"{manifest_path} is damaged: {why}")

    hashed = _HASH.search(text)
    if hashed is not None:
        begin, end = hashed.span(2)
        zeros = text[:begin] + b"0" * (end - begin) + text[end:]
        if xxhash.xxh3_128_hexdigest(zeros).encode() != hashed.group(2):
            raise damaged("its hash is wrong")
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise damaged(str(error)) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise damaged(f"it does not have the format {_FORMAT}")
    version = manifest.get("version")
    if version != _NEWEST:
        raise FailedPrecondition(
            f"{path} has version {version} of the format; this package reads version {_NEWEST}"
        )
    if hashed is None:
        raise damaged("it has no hash")
    return Checkpoint(path, manifest)
