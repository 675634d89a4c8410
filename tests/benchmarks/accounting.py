"""CPU time and memory of processes, from Linux's `/proc`."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _CUTIME, _CSTIME = 11, 12, 13, 14
"""Places in `/proc/<pid>/stat` after the command's name (proc(5) counts them from 14 on)."""
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
"""Places in the line `cpu` of `/proc/stat`."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, all its threads, and its children that have ended."""
    fields = _stat(pid)
    return sum(int(fields[at]) for at in (_UTIME, _STIME, _CUTIME, _CSTIME)) * _TICK_S


def family_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children, living or ended."""
    total = cpu_s(pid)
    for child in _children(pid):
        try:
            total += cpu_s(child)
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended a moment ago: its parent has its time, or will
    return total


def running_s(pid: int) -> float:
    """Return how long a process's first thread has run, to the nanosecond; 0 for one that has ended."""
    try:
        return int((_PROC / f"{pid}/schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in megabytes (10^6 bytes)."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """What all cores together have done since the start, in CPU seconds."""

    busy_s: float
    steal_s: float
    """Taken by the hypervisor for others."""

    @classmethod
    def now(cls) -> "MachineTimes":
        """Read them."""
        line = (_PROC / "stat").read_text().splitlines()[0]
        times = [int(text) for text in line.split()[1:9]]
        waiting = times[_IDLE] + times[_IOWAIT]
        return cls((sum(times) - waiting - times[_STEAL]) * _TICK_S, times[_STEAL] * _TICK_S)


def busy_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes with their children."""
    return sum(family_cpu_s(pid) for pid in pids)


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in (_PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
