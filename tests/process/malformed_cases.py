"""All malformed inputs: CASES, by name."""

from tests.process import (
    malformed_data,
    malformed_models,
    malformed_settings,
)  # noqa: F401 (they add their cases)
from tests.process.malformed_case import CASES, Case

__all__ = ["CASES", "Case"]
