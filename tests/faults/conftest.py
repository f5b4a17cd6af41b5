from tests.process.conftest import muster, programs  # noqa: F401
