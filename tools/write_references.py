"""Write the generated reference files below `docs/reference`; tests hold them against the code."""

from pathlib import Path

from watchword.handlers.attestor_reference import attestor_reference
from watchword.handlers.reasons import reasons_reference
from watchword.schemas.documents import references
from watchword.streams.cli.reference import cli_reference
from watchword.streams.console.api.openapi import openapi_bytes as operators_openapi_bytes
from watchword.streams.gateway.openapi import openapi_bytes
from watchword.streams.settings.reference import configuration_reference

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def generated() -> dict[str, str]:
    """Return every generated file by its name below `docs/reference`."""
    return {
        **references(),
        "attestor.md": attestor_reference(),
        "cli.md": cli_reference(),
        "configuration.md": configuration_reference(),
        "openapi.json": openapi_bytes().decode(),
        "operators-openapi.json": operators_openapi_bytes().decode(),
        "reasons.md": reasons_reference(),
    }


def main() -> None:
    """Write every file that differs."""
    for name, content in generated().items():
        path = REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != content:
            path.write_text(content, "utf-8")


if __name__ == "__main__":
    main()
