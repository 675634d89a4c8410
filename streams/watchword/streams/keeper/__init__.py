"""What has to be done once, by somebody: summaries of refusals, pruning, partitions."""

from watchword.streams.keeper.options import KeeperOptions
from watchword.streams.keeper.process import run_keeper

__all__ = ["KeeperOptions", "run_keeper"]
