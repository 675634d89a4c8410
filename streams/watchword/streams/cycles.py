"""Python's collector of cyclic garbage, which stops everything else while it looks."""

import gc


def spare_the_collector() -> None:
    """Take what a started process keeps for good out of the collector's sight, and let it look less often.

    What requests leave behind goes by its reference counts; cycles are few and small (exceptions, ended tasks, asyncio's
    transports). By default a gateway with 5,000 long polls looks at all of them every seven seconds, because a quarter of
    what it knows is new by then, and answers nobody for half a second, or for three where others want the processor too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
