"""The console script: commands by name, and errors by exit code."""

import os
import sys
from collections.abc import Sequence
from typing import cast

from cyclopts import App, CycloptsError

from watchword.handlers.errors import ConfigRefused, WatchwordError
from watchword.streams.cli import exits
from watchword.streams.cli.output import say

_COMMANDS = (
    (
        "dev",
        "dev:dev",
        "The whole of Watchword on this machine, with its own Kafka and PostgreSQL.",
    ),
    ("worker", "processes:worker", "Judge join requests."),
    ("signer", "processes:signer", "Hold the CA key and sign node certificates."),
    ("relay", "relay:app", "Carry the journal's events to Kafka."),
    ("keeper", "processes:keeper", "Summarise refusals, prune, make partitions."),
    ("gateway", "processes:gateway", "Take join requests over HTTP."),
    ("console", "processes:console", "Serve operators: an API, and pages for people."),
    ("agent", "agent:app", "What runs on the joining machine."),
    ("db", "db:app", "The schema of the database."),
    ("topics", "topics:app", "The topics in Kafka."),
    ("keys", "keys:app", "The keys of the deployment."),
    ("trust", "trust:app", "What agents are told to trust."),
    ("tenants", "tenants:app", "Tenants."),
    ("pools", "pools:app", "Pools of a tenant."),
    ("sites", "sites:app", "Sites of a tenant."),
    ("tokens", "tokens:app", "Join tokens."),
    ("images", "images:app", "Images whose machines may join."),
    ("site", "site:app", "Sites' agents: their keys, and what they assert."),
    ("cloud", "cloud:app", "Cloud accounts whose instances may join."),
    ("anchors", "anchors:app", "Certificates and keys by which clouds' identities are judged."),
    ("tpm", "tpm:app", "TPMs that may join, and what they have to show."),
    (
        "attestors",
        "attestors:app",
        "Ways to prove what a machine is: ours, and those of other packages.",
    ),
    ("requests", "requests:app", "Joins that wait for an operator."),
    ("nodes", "nodes:app", "Nodes that have joined."),
    ("kinds", "kinds:app", "Kinds of commands that nodes can be told."),
    ("commands", "commands:app", "Commands to nodes."),
    ("crl", "crl:app", "Which certificates count no more."),
    ("reclaim", "reclaim:app", "Letting a machine have its node back, once."),
    ("bans", "bans:app", "What evidence may not prove."),
    ("refusals", "refusals:app", "Machines that were refused, and why."),
    ("explain", "explain:explain", "How a request was judged, step by step."),
    ("purge", "purge:purge", "Forgetting machines whose nodes are gone."),
    ("simulate", "simulate:simulate", "A fleet that does not exist joins, renews and leaves."),
    ("operators", "operators:app", "Who may use the API and the console."),
    ("rebuild", "rebuild:rebuild", "Fold the journal and compare it with the tables."),
    ("config", "config:app", "The configuration as it was read."),
    ("doctor", "doctor:doctor", "Check a deployment."),
)


def make_app() -> App:
    """Return the commands; none of their modules is imported yet."""
    app = App(name="watchword", help="May this machine join, and as which node?")
    for name, path, summary in _COMMANDS:
        app.command(f"watchword.streams.cli.{path}", name=name, help=summary)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; whatever went wrong is one message on standard error."""
    try:
        result = make_app()(
            list(arguments), exit_on_error=False, print_error=True, result_action="return_value"
        )
        sys.stdout.flush()
    except CycloptsError:
        return exits.USAGE
    except ImportError as error:
        say(
            f"watchword: {error.name or 'a library'} is not installed; this part needs an extra of the package, such as watchword[server]"
        )
        return exits.FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not trip over it at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    except (WatchwordError, TimeoutError, OSError, KeyboardInterrupt) as error:
        _tell(error)
        return exits.exit_code(error)
    except ExceptionGroup as group:
        # Of tasks that ran together; what each could not do is told as if it had run alone.
        known, bugs = group.split((WatchwordError, TimeoutError, OSError))
        if known is None or bugs is not None:
            raise
        errors = _leaves(known)
        for each in errors:
            _tell(each)
        return exits.exit_code(errors[0])
    return result if isinstance(result, int) else exits.OK


def _tell(error: BaseException) -> None:
    match error:
        case ConfigRefused() if len(error.problems) > 1:
            say("The configuration is not usable:")
            for problem in error.problems:
                say(f"  {problem}")
        case KeyboardInterrupt():
            pass
        case _:
            say(f"watchword: {str(error) or type(error).__name__}")


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            found.append(error)
    return found


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(run(sys.argv[1:]))
