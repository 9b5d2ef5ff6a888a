"""What a prompt and a notebook show of a recommender and of a dataset."""

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import covey

SMALL = {"users": 60, "items": 80, "mean_items": 8}
HOSTILE = '<script>alert("1")</script>&\u202e\n' + "long" * 1000


@pytest.fixture(scope="module")
def fitted() -> covey.Recommender:
    return covey.fit("spectral", "synthetic", data=SMALL, model={"rank": 6})


def drawn(fitted: covey.Recommender) -> tuple[list[float], list[str]]:
    """The widths of the bars of the card, and its texts."""
    page = ElementTree.fromstring(fitted._repr_html_())  # well-formed
    texts = [text for part in page.itertext() if (text := part.strip())]
    return [float(bar.attrib["width"]) for bar in page.iter("rect")], texts


def test_a_prompt_shows_two_lines(fitted: covey.Recommender) -> None:
    head, figures = repr(fitted).splitlines()
    assert head == "<Recommender: spectral on synthetic, 60 users, 80 items"
    test, floor = fitted.result["test"], fitted.result["floor"]["popularity"]
    ceiling = fitted.result["ceiling"]["ials"]["ndcg@20"]
    assert f"popularity (floor) {floor['ndcg@20']:.4f}, spectral {test['ndcg@20']:.4f}" in figures
    assert figures.endswith(f"ials (ceiling) {ceiling:.4f}>")


def test_a_card_has_bars_in_proportion(fitted: covey.Recommender) -> None:
    bars, texts = drawn(fitted)
    of = fitted.result
    figures = [of["floor"]["popularity"], of["test"], *of["ceiling"].values()]
    values = [figure["ndcg@20"] for figure in figures]
    assert [bar / max(bars) for bar in bars] == pytest.approx(
        [value / max(values) for value in values], abs=1e-3
    )
    assert {f"{value:.4f}" for value in values} <= set(texts)
    assert texts[:3] == ["spectral on synthetic", "60 users, 80 items", texts[2]]
    assert texts[2].startswith("ndcg@20 of the test, round ")


def test_a_card_needs_nothing_else(fitted: covey.Recommender) -> None:
    page = fitted._repr_html_()
    assert len(page) < 3000
    assert not re.search(r"https?:|src=|href=|url\(|<script|<style|<link", page)


@pytest.mark.parametrize("broken", [{}, {"test": {}, "floor": {}}, {"ceiling": {"ease": "why"}}])
def test_a_card_without_figures(fitted: covey.Recommender, broken: dict[str, Any]) -> None:
    bare = replace(fitted, result=broken)
    assert drawn(bare)[0] == [] and len(repr(bare).splitlines()) == 1


def test_names_from_outside_are_only_text(fitted: covey.Recommender) -> None:
    data = replace(fitted.prepared.dataset, name=HOSTILE)
    result = fitted.result | {"method": HOSTILE, "ceiling": {HOSTILE: {"ndcg@20": 1.0, "x": None}}}
    result["test"] = {"ndcg@20": 0.5, f"{HOSTILE}@1": float("nan")}
    odd = replace(fitted, result=result, prepared=replace(fitted.prepared, dataset=data))
    bars, texts = drawn(odd)
    assert len(bars) == 3 and "<script" not in odd._repr_html_()
    assert any(text.startswith('<script>alert("1")') for text in texts)
    assert len(odd._repr_html_()) < 3000 and len(repr(odd)) < 400
    assert "\u202e" not in repr(odd) and repr(odd).count("\n") == 1


def test_a_dataset_is_shown_in_one_line() -> None:
    pairs = np.arange(5000) % 100, np.arange(5000)
    data = covey.Dataset("big", 100, 5000, *pairs, titles=("a long title",) * 5000)
    assert repr(data) == "<Dataset 'big': 100 users, 5,000 items, 5,000 interactions>"
    hostile = repr(replace(data, name=HOSTILE))
    assert "\n" not in hostile and len(hostile) < 200
