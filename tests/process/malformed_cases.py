"""All malformed inputs: CASES, by name."""

from tests.process import (  # noqa: F401 (they add their cases)
    malformed_data,
    malformed_plugins,
    malformed_settings,
    malformed_torchscript,
    malformed_weights,
)
from tests.process.malformed_case import CASES, Case

__all__ = ["CASES", "Case"]
