"""The guards: what each promises, what switches it off, and the test that must fail then.

`off` is a function of `tests.guards.switches` that replaces the guard in a running interpreter.
`test` is a pytest node id, or, for what only shows when processes die, a command of the fault suite.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard."""

    name: str
    promise: str
    """The number of the promise in docs/promises.md."""
    off: str
    test: str


_JOIN = "tests/integration/join/test_join_token.py"

GUARDS: tuple[Guard, ...] = (
    Guard(
        "inbox claim",
        "2",
        "inbox_claims_everything",
        f"{_JOIN}::test_refusal_that_is_redelivered_is_recorded_once",
    ),
    Guard(
        "spend under lock",
        "2",
        "tokens_are_not_counted_down_in_the_batch",
        f"{_JOIN}::test_one_use_admits_one_of_a_batch",
    ),
    Guard(
        "one CSR, one admission",
        "2",
        "csrs_are_not_remembered_in_the_batch",
        f"{_JOIN}::test_same_csr_in_other_bytes_gets_the_same_admission",
    ),
    Guard(
        "key of another node",
        "6",
        "key_owners_are_ignored",
        f"{_JOIN}::test_key_on_another_nodes_certificate_is_refused",
    ),
    Guard(
        "seal binds the request",
        "6",
        "seals_bind_nothing",
        f"{_JOIN}::test_refusal_says_nothing_outside_and_everything_inside[evidence moved to another CSR]",
    ),
    Guard("ban wins", "10", "bans_are_not_read", f"{_JOIN}::test_ban_of_a_token_wins"),
    Guard(
        "reclaim stays in its place",
        "8",
        "reclaim_reaches_everywhere",
        f"{_JOIN}::test_reclaim_reaches_only_the_tokens_own_place",
    ),
    Guard(
        "admission that no longer stands",
        "2",
        "every_admission_stands",
        f"{_JOIN}::test_admission_that_no_longer_stands_is_not_repeated",
    ),
    Guard(
        "approval is of one grant",
        "7",
        "approvals_are_for_anything",
        "tests/integration/join/test_approvals.py::test_approval_of_another_grant_does_not_count",
    ),
    Guard(
        "decision names a version",
        "7",
        "decisions_are_about_anything",
        "tests/integration/operators/test_requests.py::test_a_request_that_changed_since_it_was_seen_is_not_approved",
    ),
)
