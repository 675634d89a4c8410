"""Write the generated reference files below `docs/reference`; tests hold them against the code."""

from pathlib import Path

from watchword.schemas.documents import references

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def main() -> None:
    """Write every file that differs."""
    for name, content in references().items():
        path = REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != content:
            path.write_text(content, "utf-8")


if __name__ == "__main__":
    main()
