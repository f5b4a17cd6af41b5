"""What a run of `pack_documents` has made and left out."""

from __future__ import annotations

import dataclasses
import datetime

from muster.data._counts import Counts
from muster.data._encode import Encoded
from muster.data._format import DocumentFile

# The number of records that a report names.
NAMED = 10


@dataclasses.dataclass
class Report(Counts):
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
    # Records without any trained token, which are left out; the first of them with the reason.
    untrained: int = 0
    untrained_first: list[str] = dataclasses.field(default_factory=list)
    # The date that the chat template has written into the texts.
    date: str = ""
    # Records that an earlier run, which did not end, had already done.
    continued: int = 0

    def add(self, encoded: Encoded, date: datetime.date) -> None:
        """Adds the documents of a chunk."""
        self.count(encoded)
        self.untrained += len(encoded.untrained)
        for place, why in encoded.untrained[: NAMED - len(self.untrained_first)]:
            self.untrained_first.append(f"{place}: {why}")
        for field in sorted(encoded.unused):
            if (name := f"messages[].{field}") not in self.ignored:
                self.ignored.append(name)
        if encoded.uses_date:
            self.date = date.isoformat()
