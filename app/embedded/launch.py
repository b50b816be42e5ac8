"""Becomes one server or service: `python -I -S launch.py OWNER SIGNAL UID GID bare|given COMMAND…`.

A program of its own, because the alternative, `preexec_fn`, runs Python between fork and exec in a process that has
threads. It imports nothing of Tidemill: the account it changes to may not be able to read it.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(owner: str, death_signal: str, uid: str, gid: str, environment: str, *command: str) -> None:
    if int(uid) != os.geteuid():
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    # After the change of account, which clears it. Bound to the thread that started us, see `process.spawn`.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(owner):
        sys.exit("the owner died before the server was started")
    # The servers read PG* and LC_*; nothing the owner has in its environment is meant for them.
    bare = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
    os.execve(command[0], command, bare if environment == "bare" else os.environ)  # noqa: S606 - no shell wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
