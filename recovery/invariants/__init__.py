"""What must be true of the data at any moment, whatever broke: one catalogue for all domains.

Each entry has a name, which is a sentence; a verdict; a detector that reads by index, or a bounded number of rows; and,
where something can be done about it, a repair. `harmless` hurts nobody. A `diagnosis` says that somebody has to do
something. `repairable` is put right by what the other rows say. `broken` has lost what no other row says, and is
declared so: parked, cancelled, or its process broken.

The tests that break things on purpose `check` it, `tidemill doctor` looks at it, `tidemill recover check` repairs it.
"""

from recovery.invariants.catalogue import ALL, NAMED
from recovery.invariants.entry import DOMAINS, Invariant
from recovery.invariants.looking import UNKNOWN, Looked, Violation, check, chosen, look
from recovery.invariants.repairing import Repairs, repair

__all__ = [
    "ALL",
    "DOMAINS",
    "NAMED",
    "UNKNOWN",
    "Invariant",
    "Looked",
    "Repairs",
    "Violation",
    "check",
    "chosen",
    "look",
    "repair",
]
