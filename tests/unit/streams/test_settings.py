"""Settings: one reading, all problems at once, secrets that never show."""

from pathlib import Path

import pytest

from watchword.handlers.errors import ConfigRefused
from watchword.handlers.field_docs import field_docs
from watchword.streams.settings import Settings, load, shown

HOME = {"HOME": "/nonexistent"}


def write(folder: Path, text: str) -> Path:
    file = folder / "watchword.toml"
    file.write_text(text)
    return file


def problems_of(environment: dict[str, str], file: Path | None = None) -> list[str]:
    with pytest.raises(ConfigRefused) as caught:
        load(environment=HOME | environment, file=file)
    return caught.value.problems


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Or an operator mends one, restarts, and meets the next."""
    file = write(
        tmp_path, "[worker]\nbatch_requests = 1000\n[relay]\nwave = 5\n[nonsense]\nx = 1\n"
    )

    problems = problems_of({"WATCHWORD_KEEPER__LEASE_S": "soon"}, file)

    assert len(problems) == 4
    assert any(p.startswith("worker.batch_requests (file") for p in problems)
    assert any("relay.wave" in p and "did you mean wave_rows?" in p for p in problems)
    assert any("nonsense" in p for p in problems)
    assert any("keeper.lease_s (variable WATCHWORD_KEEPER__LEASE_S)" in p for p in problems)


def test_a_misspelt_variable_is_refused() -> None:
    """A limit that somebody set and nobody reads is worse than none."""
    (problem,) = problems_of({"WATCHWORD_REFUSALS__LIMITS": "5"})

    assert problem == (
        "refusals.limits (variable WATCHWORD_REFUSALS__LIMITS): no such setting; did you mean limit?"
    )


def test_a_variable_wins_over_the_file_and_ours_over_the_short_form(tmp_path: Path) -> None:
    """The order is the one that every twelve-factor deployment counts on."""
    file = write(tmp_path, '[kafka]\n"bootstrap.servers" = "file:1"\n[log]\nlevel = "ERROR"\n')

    loaded = load(
        environment=HOME
        | {
            "KAFKA_BOOTSTRAP_SERVERS": "short:2",
            "WATCHWORD_KAFKA__BOOTSTRAP_SERVERS": "ours:3",
            "LOG_LEVEL": "DEBUG",
        },
        file=file,
    )

    assert loaded.settings.kafka.bootstrap_servers == "ours:3"
    assert loaded.settings.log.level == "DEBUG"
    assert loaded.sources["log.level"] == "variable LOG_LEVEL"


@pytest.mark.parametrize(
    "spelling", ['"bootstrap.servers"', "bootstrap.servers", "bootstrap_servers"]
)
def test_a_kafka_property_may_be_spelt_as_in_its_own_world(tmp_path: Path, spelling: str) -> None:
    """Operators paste from a Java client's properties."""
    file = write(tmp_path, f'[kafka]\n{spelling} = "broker:9092"\n')

    assert load(environment=HOME, file=file).settings.kafka.bootstrap_servers == "broker:9092"


@pytest.mark.parametrize(
    "text",
    [
        '[kafka]\nsasl.password = "hunter2"\n',
        '[database]\nurl = "postgres://u:hunter2@h/d"\n',
        '[database]\nurl = "postgres://h/d?user=u&password=hunter2"\n',
    ],
)
def test_no_password_stands_in_the_configuration_file(tmp_path: Path, text: str) -> None:
    """Configuration files are committed, copied and pasted into tickets."""
    (problem,) = problems_of({}, write(tmp_path, text))

    assert "name a file in" in problem
    assert "hunter2" not in problem


def test_secrets_come_by_file_and_by_credential_and_never_show(tmp_path: Path) -> None:
    """What `config show` prints is pasted into tickets."""
    (tmp_path / "database.url").write_text("postgres://u:hunter2@h/d\n")
    (tmp_path / "kafka").write_text("hunter3\n")

    loaded = load(
        environment=HOME
        | {
            "CREDENTIALS_DIRECTORY": str(tmp_path),
            "KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "kafka"),
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_SASL_USERNAME": "worker",
        }
    )

    url = loaded.settings.database.url
    assert url is not None
    assert url.get_secret_value() == "postgres://u:hunter2@h/d"
    assert loaded.settings.kafka.connection().sasl_password == "hunter3"  # noqa: S105 - a test's
    assert "hunter" not in repr(shown(loaded)) + repr(loaded) + repr(
        loaded.settings.kafka.connection()
    )
    assert loaded.sources["database.url"] == "credential database.url"


def test_a_broken_secret_is_not_quoted() -> None:
    """An error message is a log line."""
    (problem,) = problems_of({"DATABASE_URL": "mysql://u:hunter2@h/d"})

    assert "hunter2" not in problem
    assert "postgres://" in problem


def test_limits_of_an_attestor_are_a_table_or_variables(tmp_path: Path) -> None:
    """A list that is left out allows all, an empty one nothing: the two must stay apart."""
    file = write(tmp_path, '[attestors]\nenabled = ["tpm"]\n[attestors.x509-pop]\ntenants = []\n')

    limits = load(
        environment=HOME | {"WATCHWORD_ATTESTORS__JOIN_TOKEN__POOLS": "gpu, cpu"}, file=file
    ).settings.attestors.limits

    assert limits["x509-pop"].tenants == ()
    assert limits["x509-pop"].pools is None
    assert limits["join-token"].pools == ("gpu", "cpu")


def test_rules_between_fields_are_checked() -> None:
    """Each value alone may be fine."""
    found = problems_of(
        {
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "WATCHWORD_TOPICS__REPLICATION_FACTOR": "1",
            "WATCHWORD_GATEWAY__TLS_KEY_FILE": "/x",
        }
    )

    assert [p.split(":")[0] for p in found] == [
        "kafka.sasl_username",
        "kafka.sasl_password",
        "gateway.tls_certificate_file and gateway.tls_key_file",
        "topics.min_insync_replicas",
    ]


def test_variables_of_libpq_are_enough() -> None:
    """Operators have them already."""
    assert load(environment=HOME).settings.database.url is None
    assert load(environment=HOME | {"PGHOST": "db"}).settings.database.url is not None


def test_every_process_listens_on_ports_of_its_own() -> None:
    """All of them on one host, as they come, is how a deployment begins: the second of a pair would not start."""
    sections = [getattr(Settings(), name) for name in Settings.model_fields]
    ports = [
        getattr(section, name)
        for section in sections
        for name in ("port", "health_port")
        if name in type(section).model_fields
    ]
    assert len(ports) == 8
    assert len(set(ports)) == len(ports)


def test_every_setting_is_explained() -> None:
    """The reference is made from these texts."""
    for name in Settings.model_fields:
        section = type(getattr(load(environment=HOME).settings, name))
        docs = field_docs(section)
        for field_name in section.model_fields:
            assert docs[field_name], f"{name}.{field_name}"
