"""The fixtures of the process tests: a Muster of real programs."""

from tests.process.conftest import *  # noqa: F403
