"""How often and how much at once, with tables that no attacker makes grow."""

from watchword.streams.gateway.quotas import Buckets, Shares


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_address_has_its_burst_and_then_its_rate() -> None:
    """Racks boot together; floods go on."""
    clock = Clock()
    buckets = Buckets(30, 10.0, capacity=10, clock=clock)

    assert [buckets.take("a") for _ in range(30)] == [0] * 30
    assert buckets.take("a") == 1
    clock.now += 1.0
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 1]


def test_one_address_does_not_use_up_anothers_tokens() -> None:
    """Limits must not hit the innocent."""
    buckets = Buckets(2, 10.0, capacity=10, clock=Clock())
    for _ in range(5):
        buckets.take("noisy")

    assert buckets.take("quiet") == 0


def test_being_refused_costs_nothing() -> None:
    """A client that tries too early must not push its own turn away."""
    clock = Clock()
    buckets = Buckets(1, 10.0, capacity=10, clock=clock)
    buckets.take("a")
    for _ in range(9):
        clock.now += 1.0
        assert buckets.take("a") > 0
    clock.now += 1.0

    assert buckets.take("a") == 0


def test_the_wait_that_is_told_suffices() -> None:
    """An agent that obeys Retry-After gets in."""
    clock = Clock()
    buckets = Buckets(3, 100.0, capacity=10, clock=clock)
    for _ in range(3):
        buckets.take("a")
    clock.now += buckets.take("a")

    assert buckets.take("a") == 0


def test_a_million_addresses_are_not_remembered() -> None:
    """The limiter must not be what fills the memory."""
    buckets = Buckets(1, 10.0, capacity=100, clock=Clock())
    for number in range(10_000):
        buckets.take(str(number))

    assert len(buckets) == 100


def test_shares_are_bounded_for_one_and_for_all() -> None:
    """One address cannot take everything, and all together not more than there is."""
    shares = Shares(per_address=2, total=3)

    assert [shares.take("a"), shares.take("a"), shares.take("a")] == [None, None, "address"]
    assert [shares.take("b"), shares.take("b")] == [None, "total"]
    shares.give("a")
    assert shares.take("b") is None


def test_what_is_given_back_leaves_nothing_behind() -> None:
    """A table of addresses that hold nothing would grow for ever."""
    shares = Shares(per_address=10, total=10)
    shares.take("a", 7)
    shares.give("a", 7)

    assert (shares.held, shares._held) == (0, {})
