"""Training data for jobs, made with the tokenizers of Hugging Face.

    made = muster.data.pack_documents("qwen3", files=["chats.jsonl"], out="train.safetensors")
    made.files[0].trained

writes documents with a mark for each token that is trained, and

    made = muster.data.pack("tokenizer.json", files=["a.txt", "b.txt"], out="train.bin")
    made.tokens, made.dtype, made.vocab_size

writes a plain list of token numbers. docs/reference/data.md describes both kinds of files. Needs
the package `tokenizers`; chat templates need `jinja2`, and Parquet and Arrow files `pyarrow`."""

from muster.data._documents import pack_documents
from muster.data._format import DocumentFile, open_documents
from muster.data._report import Report
from muster.data._show import Document, Part, show_documents
from muster.data._tokens import Packed, pack

__all__ = [
    "Document",
    "DocumentFile",
    "Packed",
    "Part",
    "Report",
    "open_documents",
    "pack",
    "pack_documents",
    "show_documents",
]
