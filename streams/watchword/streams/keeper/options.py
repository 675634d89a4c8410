"""What a keeper needs to be told."""

from dataclasses import dataclass, field

from watchword.handlers.alerts import AlertRules
from watchword.handlers.store.connection import Database
from watchword.handlers.windows import Limit
from watchword.streams.lifecycle import Lifecycle


@dataclass(frozen=True, slots=True)
class KeeperOptions:
    """The wiring and the limits of one keeper."""

    database: Database
    name: str
    """For logs and the lease. A suffix of this start is added."""

    limit: Limit
    """The bound on details that workers keep to; summaries tell it."""

    source: str = "/watchword/keeper"
    """The CloudEvents source of summaries."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)

    lease_s: float = 15.0
    """How long the work waits after a SIGKILL until another keeper takes over."""

    interval_s: float = 1.0
    """Rest between two looks: the first summary of a bucket is at most this late."""

    period_s: float = 60.0
    """What one summary covers while refusals are held back."""

    alerts: AlertRules = field(default_factory=AlertRules)
    """When refusals are worth an alert."""

    credentials_s: float = 15.0
    """How often is looked, while there are refusals, for machines that try many credentials."""

    upkeep_s: float = 60.0
    """How often is pruned, and partitions are looked after."""

    partition_days_ahead: int = 7
    partition_alarm_days: float = 3.0
    """With fewer days ahead than this the keeper is not ready, and logs an error at each look."""

    refusal_retention_days: int = 30
    """Whole days of refusals older than this are dropped."""

    inbox_retention_h: float = 48.0
    """Must outlive the retention of `join.requests`: a request that comes again later is judged anew."""

    join_request_retention_days: int = 30
    """How long joins that were decided can be looked up. At least a day: `rebuild --check` counts on it."""

    command_retention_days: int = 30
    """How long commands that have ended can be looked up. At least a day, for the same reason."""

    use_grace_h: float = 1.0
    """How long an expired use is kept: a database that fails over may have a clock that is behind."""
