"""The PCRs of an open TPM, and the banks that have them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from watchword.handlers.attestors.tpm.algorithms import BANKS
from watchword.handlers.prover import NoEvidence

_BANKS = ("sha512", "sha384", "sha256", "sha1")
"""The best first."""
_PCRS_AT_A_TIME = 8
_BOOT_PCRS = tuple(range(15))


class Pcrs:
    """Reads PCRs. Every method raises what tpm2-pytss does."""

    def __init__(self, tss: Any, esapi: Any, ask: Callable[[Callable[[], Any]], Any]) -> None:  # noqa: ANN401 - see `library`
        """Take the library, an open context, and what asks it with patience."""
        self._tss = tss
        self._esapi = esapi
        self._ask = ask

    def all(self) -> dict[str, dict[str, str]]:
        """Return the values of all PCRs of firmware and boot loader, by bank and number, in hexadecimal."""
        found: dict[str, dict[str, str]] = {}
        for bank in sorted(self.banks_with(_BOOT_PCRS)):
            values = self.values(bank, _BOOT_PCRS)
            size = len(values) // len(_BOOT_PCRS)
            found[bank] = {
                str(pcr): values[n * size : (n + 1) * size].hex()
                for n, pcr in enumerate(_BOOT_PCRS)
            }
        return found

    def bank(self, banks: tuple[str, ...], pcrs: tuple[int, ...]) -> str:
        """Return the first accepted bank that has these PCRs; else the TPM's best, which will be refused by its name."""
        has = self.banks_with(pcrs)
        for bank in (*banks, *_BANKS):
            if bank in has:
                return bank
        message = "no bank of the TPM has the PCRs that are asked for"
        raise NoEvidence(message)

    def banks_with(self, pcrs: tuple[int, ...]) -> set[str]:
        """Return the banks that have all of these PCRs."""
        _, said = self._ask(lambda: self._esapi.get_capability(self._tss.TPM2_CAP.PCRS, 0, 1))
        selections = said.data.assignedPCR
        has: set[str] = set()
        for number in range(selections.count):
            selection = selections.pcrSelections[number]
            bits = int.from_bytes(bytes(selection.pcrSelect)[: selection.sizeofSelect], "little")
            if all(bits >> pcr & 1 for pcr in pcrs):
                has.add(BANKS.get(int(selection.hash), ""))
        return has - {""}

    def values(self, bank: str, pcrs: tuple[int, ...]) -> bytes:
        """Return the values of PCRs of a bank, one after the other."""
        found: list[bytes] = []
        for at in range(0, len(pcrs), _PCRS_AT_A_TIME):
            some = pcrs[at : at + _PCRS_AT_A_TIME]
            selection = self._tss.TPML_PCR_SELECTION.parse(f"{bank}:{','.join(map(str, some))}")
            _, _, digests = self._ask(partial(self._esapi.pcr_read, selection))
            found += [bytes(digests.digests[n]) for n in range(digests.count)]
        return b"".join(found)
