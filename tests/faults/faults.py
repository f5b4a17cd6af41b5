"""The faults themselves: FAULTS, by name."""

from tests.faults import (  # noqa: F401 (they add their faults)
    fault_disks,
    fault_fsync,
    fault_network,
    fault_processes,
)
from tests.faults.fault import FAULTS, NotHappened, Skipped

__all__ = ["FAULTS", "NotHappened", "Skipped"]
