"""How much memory a worker may have, and how often it looks for what is left over."""

import gc
import resource


def limit_memory(size: int) -> int:
    """Bound the address space of this process in bytes; return the bound.

    What goes past it is a `MemoryError` in whoever asked for it, instead of a SIGKILL for whom the kernel chooses. A bound
    that was set from outside is never raised.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    return bound


def spare_the_collector() -> None:
    """Take what a started worker keeps for good out of the garbage collector's sight, and let it look less often.

    What judging makes goes by its reference counts; cycles are few (exceptions, ended tasks).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
