"""Which errors of a TPM pass by themselves, and what is done until they do."""

import pytest

from watchword.streams.agent.tpm.patience import BUSY, Patience, is_passing


class _Error(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(hex(code))
        self.code = code


def _code_of(error: Exception) -> int | None:
    return error.code if isinstance(error, _Error) else None


class _Chip:
    """A TPM that gives these errors, one after the other, and then what it was asked for."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.waited: list[float] = []
        self.tidied = 0

    def command(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def tidy(self) -> None:
        self.tidied += 1

    def ask(self, tries: int = 12) -> str:
        patience = Patience(tries, sleep=self.waited.append)
        return patience.ask(self.command, _code_of, full=self.tidy)


@pytest.mark.case("B53")
@pytest.mark.parametrize("code", sorted(BUSY))
@pytest.mark.parametrize("layer", [0, 11 << 16, 12 << 16])
def test_busy_chip_is_asked_again(code: int, layer: int) -> None:
    """A passing error is the machine's own matter: nothing is sent that could be held against it."""
    chip = _Chip(_Error(layer | code), _Error(layer | code))
    assert chip.ask() == "done"
    assert len(chip.waited) == 2
    assert chip.waited[0] < chip.waited[1]


@pytest.mark.case("B53")
@pytest.mark.parametrize("code", [0xA0009, 0xA000A])
def test_device_that_another_process_has_open_is_asked_again(code: int) -> None:
    """Without a resource manager one process at a time has the device."""
    assert _Chip(_Error(code)).ask() == "done"


@pytest.mark.parametrize("code", [0x18B, 0x1DF, 0x09F, 0x101, 0x921, 0xA0008, 0x70018, 0x70902])
def test_error_that_stays_is_raised_at_once(code: int) -> None:
    """A wrong credential, a missing index, a lockout: asking again makes none of them better."""
    chip = _Chip(_Error(code))
    with pytest.raises(_Error):
        chip.ask()
    assert chip.waited == []
    assert not is_passing(code)


def test_patience_ends() -> None:
    """A chip that never answers is no evidence, and not a process that hangs."""
    chip = _Chip(*(_Error(0x922) for _ in range(100)))
    with pytest.raises(_Error):
        chip.ask(tries=5)
    assert len(chip.waited) == 4
    assert sum(Patience().waits()) < 10


@pytest.mark.parametrize(("code", "times"), [(0x902, 1), (0x904, 1), (0x906, 1), (0x922, 0)])
def test_room_is_made_only_where_objects_are_in_the_way(code: int, times: int) -> None:
    """What is loaded may be somebody else's: nobody looks at it without need."""
    chip = _Chip(_Error(code))
    chip.ask()
    assert chip.tidied == times


def test_fault_of_ours_is_no_chips() -> None:
    """An exception without a response code is a bug, and is not repeated until it goes away."""
    chip = _Chip(KeyError("x"))
    with pytest.raises(KeyError):
        chip.ask()
    assert chip.waited == []
