"""What is counted of records that become documents, in each chunk and in the report of all."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Counts:
    records: int = 0
    # The number of tokens of the longest record before it was cut, and its place.
    longest: int = 0
    longest_at: str = ""
    # Records that are longer than allowed, and their trained tokens that are left out.
    longer: int = 0
    lost: int = 0
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

    def count(self, later: Counts) -> None:
        """Adds the counts of later records."""
        self.records += later.records
        if later.longest > self.longest:
            self.longest, self.longest_at = later.longest, later.longest_at
        self.longer += later.longer
        self.lost += later.lost
        self.endless += later.endless
        self.empty += later.empty
        self.empty_at = self.empty_at or later.empty_at
        self.joined += later.joined
        self.left_out += later.left_out
        self.left_out_at = self.left_out_at or later.left_out_at
