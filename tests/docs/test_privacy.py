"""The page on privacy names every table that there is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / "handlers" / "watchword" / "handlers" / "store" / "migrations"
_TABLE = re.compile(r"^CREATE (?:UNLOGGED )?TABLE (\w+)", re.MULTILINE)
_PARTITIONS = {"journal_domain", "journal_refusal"}


def test_every_table_has_its_place_on_the_page() -> None:
    """Whoever answers a request for erasure must not find out about a table afterwards."""
    page = (ROOT / "docs" / "guides" / "privacy.md").read_text("utf-8")
    made = {
        table
        for file in MIGRATIONS.glob("*.sql")
        for table in _TABLE.findall(file.read_text("utf-8"))
    }
    assert len(made) > 30
    assert [table for table in sorted(made - _PARTITIONS) if f"`{table}`" not in page] == []
