"""Guard: updates as transactions, checks without labels, actions, and snapshots.

It knows adapters only by the calls that it needs, so that ``driftlaw.base`` can import it.
"""

from driftlaw.guard.guard import Guard
from driftlaw.guard.settings import GuardSettings
from driftlaw.guard.state import GuardEvent
from driftlaw.guard.transaction import Transaction

__all__ = ["Guard", "GuardEvent", "GuardSettings", "Transaction"]
