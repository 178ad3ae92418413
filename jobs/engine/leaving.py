"""The end of a worker's process, whatever its handlers left running in it."""

import atexit
import logging
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Exit with this code now, also when threads of handlers hang.

    Python waits at its end for the threads of every executor, daemons among them. A handler that
    was given up may wait in one of them for ever.
    """
    atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
