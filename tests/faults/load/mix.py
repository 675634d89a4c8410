"""How often each kind of request comes."""

from tests.faults.load import commands, exchanges, kinds, renewals
from tests.faults.load.kinds import Kind

KINDS: dict[Kind, int] = {
    kinds.join: 16,
    commands.told: 2,
    renewals.renewing: 6,
    kinds.single_use: 6,
    kinds.few_uses: 6,
    kinds.same_csr: 4,
    kinds.same_key: 3,
    kinds.being_revoked: 5,
    kinds.reclaim: 3,
    kinds.bad_secret: 9,
    kinds.unknown_token: 5,
    kinds.unusable_token: 7,
    kinds.malformed_token: 2,
    kinds.moved_seal: 3,
    kinds.undecodable: 4,
    kinds.bad_csr: 4,
    kinds.unknown_attestor: 3,
    kinds.bad_plaintext: 2,
    exchanges.image: 2,
    exchanges.discovery: 2,
    exchanges.two_rounds: 3,
    exchanges.own_sql: 3,
}
"""Out of a hundred. A new attestor comes in as a further function and a line."""
