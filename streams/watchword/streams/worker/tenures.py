"""The partitions that a worker holds, each for one generation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aiokafka.structs import TopicPartition

from watchword.streams.worker import metrics
from watchword.streams.worker.prefix import Prefix


@dataclass(slots=True, eq=False)
class Tenure:
    """One partition's time with this worker, from its assignment to its revocation."""

    partition: TopicPartition
    prefix: Prefix
    committed: int
    """What Kafka has as the committed offset, as far as we know."""
    is_over: bool = False
    """No more work is begun for it. What is being judged may still end and be committed."""


class Tenures:
    """What is held now. A worker without partitions holds nothing, which is all right."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._held: dict[TopicPartition, Tenure] = {}

    def begin(self, partition: TopicPartition, offset: int) -> Tenure:
        """Hold a partition from this offset on; another tenure of it is over."""
        self.end([partition])
        tenure = Tenure(partition, Prefix(offset), offset)
        self._held[partition] = tenure
        metrics.PARTITIONS.set(len(self._held))
        return tenure

    def get(self, partition: TopicPartition) -> Tenure | None:
        """Return the tenure of a partition, if it is held."""
        return self._held.get(partition)

    def fence(self) -> None:
        """Begin no more work for anything that is held, but keep track of what is being done."""
        for tenure in self._held.values():
            tenure.is_over = True

    def end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hold these partitions, or all, no longer; what is done for them later is not committed."""
        for partition in list(self._held if partitions is None else partitions):
            tenure = self._held.pop(partition, None)
            if tenure is not None:
                tenure.is_over = True
        metrics.PARTITIONS.set(len(self._held))

    def lag(self, highwater: Callable[[TopicPartition], int | None]) -> int:
        """Return how many records are not answered; a partition that was not fetched from yet counts none."""
        return sum(
            max(0, (highwater(partition) or 0) - tenure.prefix.committable)
            for partition, tenure in self._held.items()
            if not tenure.is_over
        )

    def due(self) -> list[tuple[Tenure, int]]:
        """Return what is to be committed: tenures and their offsets."""
        return [
            (tenure, tenure.prefix.committable)
            for tenure in self._held.values()
            if tenure.prefix.committable > tenure.committed
        ]
