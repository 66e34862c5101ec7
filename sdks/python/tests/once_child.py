"""A process that is killed inside its function: `python once_child.py KEY`. It prints its downstream key once begun."""

from __future__ import annotations

import sys
import time

from mailonce import Mailonce, OnceRun


def work(run: OnceRun) -> None:
    print(run.downstream_key, flush=True)
    time.sleep(60)


Mailonce().once(sys.argv[1], work, lease_s=1)
