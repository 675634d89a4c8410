"""What the console's pages bring along."""

from hashlib import sha256
from importlib import resources

from watchword.streams.console.rendering import STATIC, environment, static_bytes

HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
"""Of `dist/htmx.min.js` in the package htmx.org 2.0.11 of npm."""


def test_the_script_is_the_one_that_was_published() -> None:
    """A changed byte in it would run with every operator's rights."""
    assert sha256(static_bytes("htmx-2.0.11.min.js")).hexdigest() == HTMX_SHA256
    licence = resources.files("watchword.streams.console") / "static" / "htmx-LICENSE.txt"
    assert "Zero-Clause BSD" in licence.read_text()
    assert sum(name.endswith(".js") for name in STATIC) == 1


def test_no_template_has_a_script_or_a_style_of_its_own() -> None:
    """The policy would stop it in the browser, and a page would be half there."""
    names = environment().list_templates()
    assert len(names) > 15
    for name in names:
        text = (resources.files("watchword.streams.console") / "templates" / name).read_text()
        assert "<style" not in text, name
        assert " style=" not in text, name
        assert " on" + "click" not in text, name
        assert "|safe" not in text, name
        assert text.count("<script") == text.count("<script src="), name
