"""Pictures: well-formed, without overlaps, and in colours that everybody can tell apart."""

import importlib.util
import itertools
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

import vmkv
from vmkv.svg import COLORS, Drawing, Line, Rect, Text, check_path, save, text_width, wrap

SVG = "{http://www.w3.org/2000/svg}"
SCHEMES = ("vermilion", "orange", "sky", "blue")

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency" (2009), at full severity, on linear RGB.
VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
Vector = npt.NDArray[np.float64]


def linear(color: str) -> Vector:
    """sRGB's numbers as amounts of light."""
    values = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    return float(linear(color) @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def lab(light: Vector) -> Vector:
    """CIE L*a*b* of linear RGB, for D65."""
    matrix = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(matrix @ light.clip(0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("page", ["light", "dark"])
def test_schemes_can_be_told_apart(vision: str, page: str) -> None:
    """Differences (CIE76) of 2 can be seen, those of 10 at a glance."""
    for one, other in itertools.combinations(SCHEMES, 2):
        seen = [lab(VISIONS[vision] @ linear(getattr(COLORS[c], page))) for c in (one, other)]
        assert np.linalg.norm(seen[0] - seen[1]) > 24, (one, other)


@pytest.mark.parametrize("page", ["light", "dark"])
def test_schemes_can_be_told_apart_in_gray(page: str) -> None:
    """As a printer without colours has them: by their brightness, also from the page's."""
    names = (*SCHEMES, "paper")
    grays = sorted(float(lab(linear(getattr(COLORS[name], page)))[0]) for name in names)
    assert min(high - low for low, high in itertools.pairwise(grays)) > 12


@pytest.mark.parametrize("page", ["light", "dark"])
def test_text_and_outlines_can_be_read(page: str) -> None:
    paper = getattr(COLORS["paper"], page)
    assert contrast(getattr(COLORS["blue"], page), paper) > 4.5  # bars that have text on them
    assert contrast(getattr(COLORS["ink"], page), paper) > 12
    assert contrast(getattr(COLORS["muted"], page), paper) > 4.5


def small() -> Drawing:
    drawing = Drawing(200, 100, "a <title>", "what & where")
    drawing.add(
        Rect(10, 20, 30.126, 40, "sky", "ink", about="a bar > 1"),
        Rect(50, 20, 30, 40, "blue"),
        Line(0, 1, 2, 3, "muted", 1.5),
        Text(5, 6, "x < y", 11, "ink", "middle", bold=True),
    )
    return drawing


def test_svg() -> None:
    root = ElementTree.fromstring(small().svg())
    assert root.tag == f"{SVG}svg"
    assert (root.get("viewBox"), root.get("width")) == ("0 0 200 100", "200")
    assert [child.tag.removeprefix(SVG) for child in root] == [
        *("title", "desc", "style"),
        *("rect", "rect", "rect", "line", "text"),
    ]
    title, about, _, paper, bar, plain, line, text = root
    assert (title.text, about.text) == ("a <title>", "what & where")
    assert (paper.get("class"), paper.get("fill"), paper.get("width")) == (
        "f-paper",
        "#ffffff",
        "200",
    )
    assert bar.get("class") == "f-sky s-ink"
    assert (bar.get("x"), bar.get("width"), bar.get("fill")) == ("10", "30.13", COLORS["sky"].light)
    assert [child.text for child in bar] == ["a bar > 1"]
    assert (plain.get("stroke"), list(plain)) == (None, [])
    assert (line.get("stroke"), line.get("stroke-width")) == (COLORS["muted"].light, "1.5")
    assert (text.text, text.get("text-anchor"), text.get("font-weight")) == (
        "x < y",
        "middle",
        "bold",
    )


def test_dark_pages_are_dark_on_screens_only() -> None:
    style = ElementTree.fromstring(small().svg())[2].text or ""
    assert style.startswith("@media screen and (prefers-color-scheme:dark){")
    for name, color in COLORS.items():
        assert f".f-{name}{{fill:{color.dark}}}.s-{name}{{stroke:{color.dark}}}" in style


def test_wrapped_text_is_no_wider_than_it_may_be() -> None:
    text = "words and more words that go on for a while " * 3
    for width in (100.0, 333.0):
        lines = wrap(text, width, 12)
        assert " ".join(lines) == text.strip()
        assert max(text_width(line, 12) for line in lines) <= width
    drawing = Drawing(200, 100, "", "")
    assert drawing.paragraph(10, 30, text, size=10) == pytest.approx(30 + 14 * len(drawing.shapes))
    assert len(drawing.shapes) == len(wrap(text, 180, 10))


def test_legends_wrap() -> None:
    drawing = Drawing(260, 100, "", "")
    after = drawing.legend(10, 30, [(color, f"scheme {color}") for color in SCHEMES])
    swatches = [shape for shape in drawing.shapes if isinstance(shape, Rect)]
    assert [swatch.fill for swatch in swatches] == list(SCHEMES)
    assert after > 50
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            assert shape.x + text_width(shape.text, shape.size) <= 250


def test_save_svg(tmp_path: Path) -> None:
    save(small(), tmp_path / "small.SVG")
    assert (tmp_path / "small.SVG").read_text(encoding="utf-8") == small().svg()


def test_save_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from matplotlib.image import imread

    path = tmp_path / "small.png"
    save(small(), path)
    image = imread(path)
    assert image.shape[:2] == (200, 400)  # twice as fine

    def color(x: int, y: int) -> str:
        return "#" + "".join(f"{round(255 * float(part)):02x}" for part in image[2 * y, 2 * x, :3])

    assert color(25, 40) == COLORS["sky"].light
    assert color(65, 40) == COLORS["blue"].light
    assert color(150, 50) == COLORS["paper"].light


@pytest.mark.parametrize("name", ["picture", "picture.jpg", "svg"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(vmkv.InvalidError, match=r"ends in \.svg or \.png"):
        save(small(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_told_before(tmp_path: Path) -> None:
    with pytest.raises(vmkv.InvalidError, match="there is no directory"):
        check_path(tmp_path / "nowhere" / "a.svg")


def test_texts_that_xml_cannot_hold(tmp_path: Path) -> None:
    drawing = small()
    drawing.add(Text(1, 1, "a\udcff\x01b"))
    save(drawing, tmp_path / "a.svg")
    assert "a??b" in ElementTree.parse(tmp_path / "a.svg").getroot().itertext()


def test_png_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_path(tmp_path / "a.svg")
    with pytest.raises(vmkv.InvalidError, match=r"needs matplotlib: install vmkv\[plot\]"):
        check_path(tmp_path / "a.png")
