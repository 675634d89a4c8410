"""Become a server that does not outlive the process that started it.

Run as a script by `server_process`, with nothing but the standard library: give up root, tie this
process's life to its parent's, then turn into the server by `exec`. It is a program of its own
because the kernel forgets the tie when credentials change, and because code between fork and exec
is not safe in a parent that has threads.

On Linux the kernel sends the signal when the *thread* that started this process ends, which is why
servers are started from a thread that lives as long as they shall. Other systems have no such tie:
there a parent that is killed outright leaves the server behind, and the next start says so.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Take `parent-pid signal uid gid command…`; a uid of -1 keeps the user. Never returns."""
    parent, death_signal, uid, gid = (int(argument) for argument in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        # It died before the tie was made.
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell, and the command is the launcher's own


if __name__ == "__main__":
    main(sys.argv[1:])
