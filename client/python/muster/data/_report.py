"""What a run of `pack_documents` has made and left out."""

from __future__ import annotations

import dataclasses
import datetime

from muster.data._encode import Encoded
from muster.data._format import DocumentFile

# The number of records that a report names.
NAMED = 10


@dataclasses.dataclass
class Report:
    """What `pack_documents` has made, and what it has left out."""

    # How the records were read, and what of them is trained.
    shape: str = ""
    train: str = ""
    # Fields of the first record, and of messages ("messages[].name"), that are not used.
    ignored: list[str] = dataclasses.field(default_factory=list)
    files: list[DocumentFile] = dataclasses.field(default_factory=list)
    dtype: str = ""
    vocab_size: int = 0
    tokenizer_xxh3_128: str = ""
    records: int = 0
    # The number of tokens of the longest record before it was cut, and its place.
    longest: int = 0
    longest_at: str = ""
    # Records that are longer than allowed, and their trained tokens that are left out.
    longer: int = 0
    lost: int = 0
    # Records without any trained token, which are left out; the first of them with the reason.
    untrained: int = 0
    untrained_first: list[str] = dataclasses.field(default_factory=list)
    # Trained parts that end without a token that ends a turn: a model does not learn to stop.
    endless: int = 0
    # Trained turns without any text, and the place of the first one.
    empty: int = 0
    empty_at: str = ""
    # Prompts that are joined to their completions without the tokenizer's chat template.
    joined: int = 0
    # Messages that the chat template does not write, such as those of a role that it does not
    # know, and the place of the first one.
    left_out: int = 0
    left_out_at: str = ""
    # The date that the chat template has written into the texts.
    date: str = ""
    # Records that an earlier run, which did not end, had already done.
    continued: int = 0

    def add(self, encoded: Encoded, date: datetime.date) -> None:
        """Adds the documents of a chunk."""
        self.records += encoded.records
        self.longer += encoded.longer
        self.lost += encoded.lost
        self.endless += encoded.endless
        self.untrained += len(encoded.untrained)
        for place, why in encoded.untrained[: NAMED - len(self.untrained_first)]:
            self.untrained_first.append(f"{place}: {why}")
        if encoded.longest > self.longest:
            self.longest, self.longest_at = encoded.longest, encoded.longest_at
        self.empty += encoded.empty
        self.empty_at = self.empty_at or encoded.empty_at
        self.joined += encoded.joined
        self.left_out += encoded.left_out
        self.left_out_at = self.left_out_at or encoded.left_out_at
        for field in sorted(encoded.unused):
            if (name := f"messages[].{field}") not in self.ignored:
                self.ignored.append(name)
        if encoded.uses_date:
            self.date = date.isoformat()
