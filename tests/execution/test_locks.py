"""The lock of an adapter in forked processes."""

import os
import subprocess
import sys

import pytest

FORK = """
import os, threading
from driftlaw.execution.locks import ForkSafeRLock

lock, held, done = ForkSafeRLock(), threading.Event(), threading.Event()

def hold():
    with lock:
        held.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(0 if lock.acquire(timeout=30) else 1)
status = os.waitpid(child, 0)[1]
done.set()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent():
    assert subprocess.run([sys.executable, "-c", FORK], timeout=120, check=False).returncode == 0
