"""How much memory a worker may have."""

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
