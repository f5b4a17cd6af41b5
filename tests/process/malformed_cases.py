"""All malformed inputs: CASES, by name."""

from tests.process import (  # noqa: F401 (they add their cases)
    malformed_idx,
    malformed_npy,
    malformed_plugins,
    malformed_rows,
    malformed_settings,
    malformed_tokens,
    malformed_torchscript,
    malformed_weights,
)
from tests.process.malformed_case import CASES, Case

__all__ = ["CASES", "Case"]
