from __future__ import annotations

from persys_core.model.secrets import without_values
from persys_core.retry.texts import presentable


def test_secrets_are_gone_before_the_text_is_cut() -> None:
    """A secret that lies across the cut leaves no half behind (A04)."""
    secret = "open sesame and " + "z" * 60
    text = "a " * 2000 + secret + " tail" * 2000
    for start in range(0, 120, 7):
        assert "sesame" not in presentable(text[start:], {secret})


def test_a_url_across_the_cut_leaves_no_password() -> None:
    """A long text is cut at a blank, so that half a URL cannot hide its password."""
    # Masked credentials shorten a text, which is what brings the cut into what is shown.
    shrinking = ("redis://u:" + "p" * 400 + "@h ") * 9
    for padding in range(4060 - len(shrinking), 4096 - len(shrinking), 3):
        text = shrinking + "x" * padding + " redis://user:hunter2" + "y" * 200 + "@host/0 z"
        assert "hunter2" not in presentable(text)


def test_a_long_word_is_dropped_and_fast() -> None:
    """A megabyte without a blank is no text for people."""
    assert presentable("a" * 10**6) == " …"


def test_the_longer_secret_goes_first() -> None:
    """A secret inside another one does not leave the rest of the longer one."""
    assert without_values("pass12345", {"pass", "pass12345"}) == "***"


def test_short_texts_stay_as_they_are() -> None:
    """Only blanks around them go."""
    assert presentable("  exited with code 1\n") == "exited with code 1"
