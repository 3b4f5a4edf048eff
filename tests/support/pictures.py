"""What is written in a picture, and where its colours are."""

from typing import Any

import pytest
from PIL import ImageDraw


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is drawn while the test runs."""
    texts: list[str] = []
    original = ImageDraw.ImageDraw.text

    def text(self: Any, place: Any, words: str, *arguments: Any, **settings: Any) -> None:
        texts.append(words)
        original(self, place, words, *arguments, **settings)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return texts
