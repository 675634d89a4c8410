"""What a gateway takes on, and when the others come again."""

from dataclasses import dataclass

from watchword.streams.gateway.shedding import Turns, Window


@dataclass
class Clock:
    """A clock that stands still."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def fill(window: Window) -> list[float]:
    """Begin as many sends as there is room for."""
    begun: list[float] = []
    while (at := window.begin()) is not None:
        begun.append(at)
    return begun


def answer(window: Window, clock: Clock, took_s: float, *, acknowledged: bool) -> int:
    """Have all that there is room for begin at once, and end after so long; return how many."""
    begun = fill(window)
    clock.now += took_s
    for at in begun:
        window.end(at, acknowledged=acknowledged)
    return len(begun)


def test_quick_sends_widen_the_window_up_to_its_limit() -> None:
    """Where Kafka is quick nobody is turned away whom it could have taken."""
    clock = Clock()
    window = Window(2000, deadline_s=5.0, clock=clock)
    taken = [answer(window, clock, 0.5, acknowledged=True) for _ in range(10)]
    assert taken[0] == 256
    assert taken == sorted(taken)
    assert taken[-1] == 2000


def test_late_sends_narrow_it_once_for_all_that_were_late_together() -> None:
    """Thousands at once miss every deadline; as many as can be done keep theirs."""
    clock = Clock()
    window = Window(2000, deadline_s=5.0, clock=clock)
    taken = [answer(window, clock, 3.0, acknowledged=True) for _ in range(3)]
    assert taken == [256, 179, 125]
    taken = [answer(window, clock, 5.0, acknowledged=False) for _ in range(20)]
    assert taken[-1] == 100


def test_a_queue_that_is_slower_than_its_deadline_settles_below_it() -> None:
    """Whatever the speed: what is taken on is acknowledged in time, and no speed is left unused."""
    for per_s in (50, 100, 1000):
        clock = Clock()
        window = Window(2000, deadline_s=5.0, clock=clock)
        for _ in range(200):
            begun = fill(window)
            for nth, at in enumerate(begun):
                clock.now = at + (nth + 1) / per_s
                window.end(at, acknowledged=clock.now - at < 5.0)
        assert per_s < window.limit < per_s * 5.0


def test_what_was_not_sent_says_nothing_about_the_way() -> None:
    """Junk neither widens nor narrows it, and takes no room away."""
    clock = Clock()
    window = Window(10, deadline_s=5.0, clock=clock)
    for _ in range(100):
        begun = window.begin()
        assert begun is not None
        clock.now += 4.0
        window.end(begun, acknowledged=None)
    assert len(fill(window)) == 10


def test_machines_that_are_turned_away_come_again_one_after_the_other() -> None:
    """Five thousand that are told to come in a second come in a second, and are turned away again."""
    clock = Clock()
    turns = Turns(100.0, most_s=60.0, clock=clock)
    assert [turns.next_s() for _ in range(300)] == [1] * 100 + [2] * 100 + [3] * 100
    clock.now += 10.0
    assert turns.next_s() == 1
    assert max(turns.next_s() for _ in range(100_000)) == 60


def test_more_come_again_where_more_are_served() -> None:
    """A quick gateway need not make a fleet wait as a slow one does."""
    clock = Clock()
    turns = Turns(100.0, most_s=60.0, clock=clock)
    for _ in range(1000):
        turns.served()
    clock.now += 2.0
    assert max(turns.next_s() for _ in range(1000)) == 2
    clock.now += 10.0  # nobody is served any more
    assert max(turns.next_s() for _ in range(1000)) == 10
