"""Pictures: drawn once, written as SVG with nothing but this, or as PNG by matplotlib.

A drawing has its origin at the top left and its lengths in pixels. Colours are named: each has a
shade for a light page, which is also what is printed, and one for a dark page, which an SVG takes
where the reader prefers it. A drawing brings its own background, so it can be read on any page.
"""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from vmkv.errors import InvalidError

SUFFIXES = (".svg", ".png")
OUTLINE = 0.75  # pixels of a rectangle's stroke
DASH = 4.0  # pixels of its dashes, and of the gaps between them


class Color(NamedTuple):
    """On a light page and in print, and on a dark page."""

    light: str
    dark: str


# The four of schemes are after Okabe and Ito, "Color Universal Design" (2008), each with a
# brightness of its own: so they can be told apart with any of the common colour vision
# deficiencies, and in gray.
COLORS = {
    "paper": Color("#ffffff", "#14171c"),
    "ink": Color("#1a1d21", "#e6e8eb"),
    "muted": Color("#55595f", "#a9afb8"),
    "vermilion": Color("#c85200", "#f0874f"),
    "orange": Color("#f7c948", "#fff0b0"),
    "sky": Color("#5aabdd", "#96d2f4"),
    "blue": Color("#004a80", "#2a86c8"),
}

# Sans serif letters are narrower than this part of their size on average, digits included.
_LETTER_WIDTH = 0.6
_FONTS = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
_DPI = 100  # pixels of a drawing in an inch of a PNG, which has twice as many of its own
_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}


class Rect(NamedTuple):
    """A filled rectangle. `about` is what a browser shows under the pointer; a dashed outline is
    for what isn't there."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    about: str = ""
    dashed: bool = False


class Line(NamedTuple):
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str
    width: float = 1


class Area(NamedTuple):
    """A filled polygon. `about` as a rectangle's."""

    points: tuple[tuple[float, float], ...]
    fill: str
    about: str = ""


class Text(NamedTuple):
    """A line of text. y is its base line; anchor is what x is of it: start, middle or end."""

    x: float
    y: float
    text: str
    size: float = 12
    fill: str = "ink"
    anchor: str = "start"
    bold: bool = False


Shape = Rect | Line | Area | Text


@dataclass
class Drawing:
    """Shapes, in the order in which they are drawn.

    Attributes:
        title: what it is, for those who can't see it.
        about: what it shows, likewise.
    """

    width: float
    height: float
    title: str
    about: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw over what is there."""
        self.shapes += shapes

    def paragraph(
        self, x: float, y: float, text: str, *, size: float = 12, fill: str = "ink"
    ) -> float:
        """Text in as many lines as it takes to the right margin, which is as wide as x. Returns
        the base line of what comes next."""
        for line in wrap(text, self.width - 2 * x, size):
            self.add(Text(x, y, line, size, fill))
            y += 1.4 * size
        return y

    def legend(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> float:
        """Swatches with names, given as (colour, name), in as many lines as it takes to the right
        margin, which is as wide as x. Returns the base line of what comes next."""
        left = x
        for color, name in entries:
            width = 17 + text_width(name, 12) + 20
            if left > x and left + width - 20 > self.width - x:
                left, y = x, y + 20
            self.add(Rect(left, y - 10, 11, 11, color, "ink"), Text(left + 17, y, name))
            left += width
        return y + 20

    def svg(self) -> str:
        """The drawing as an SVG document."""
        root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {self.width:g} {self.height:g}",
                "width": f"{self.width:g}",
                "height": f"{self.height:g}",
                "role": "img",
                "font-family": _FONTS,
            },
        )
        for tag, text in (("title", self.title), ("desc", self.about), ("style", _style())):
            ElementTree.SubElement(root, tag).text = _clean(text)
        for shape in (Rect(0, 0, self.width, self.height, "paper"), *self.shapes):
            _add_element(root, shape)
        ElementTree.indent(root, "")
        return ElementTree.tostring(root, encoding="unicode") + "\n"


def text_width(text: str, size: float) -> float:
    """Pixels that a line of text takes at most or so: nobody here knows the reader's font."""
    return _LETTER_WIDTH * size * len(text)


def wrap(text: str, width: float, size: float) -> list[str]:
    """Lines of text that are no wider than that many pixels."""
    return textwrap.wrap(text, max(int(width / text_width("x", size)), 1)) or [""]


def check_path(path: Path) -> None:
    """Whether a picture can be written under that name, as far as can be told before.

    Raises:
        InvalidError: it ends in neither .svg nor .png, there is no such directory, or it is a PNG
        and there is no matplotlib.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidError(f"{path.name!r} is no picture's name: it ends in .svg or .png")
    if not path.parent.is_dir():
        raise InvalidError(f"{str(path)!r} can't be written: there is no directory {path.parent}")
    if path.suffix.lower() == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise InvalidError(
            f"{path.name!r} needs matplotlib: install vmkv[plot], or write an .svg, which needs "
            f"nothing else"
        )


def save(drawing: Drawing, path: Path) -> None:
    """Write a drawing to a file whose name says how: .svg, or .png, always on white.

    Raises:
        InvalidError: see `check_path`. OSError: the file can't be written.
    """
    check_path(path)
    try:
        if path.suffix.lower() == ".svg":
            path.write_bytes(drawing.svg().encode())
        else:
            _save_png(drawing, path)
    except OSError as error:  # a full disk doesn't say which file
        raise OSError(error.errno, error.strerror, str(path)) from error


# ---- SVG


def _clean(text: str) -> str:
    """Without what XML can't hold: control characters, and bytes of file names that are no text."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _style() -> str:
    """Shapes carry the light colours as attributes, which a style of any kind overrides: so what
    knows no media queries, and paper, get those."""
    rules = "".join(
        f".f-{name}{{fill:{color.dark}}}.s-{name}{{stroke:{color.dark}}}"
        for name, color in COLORS.items()
    )
    return f"@media screen and (prefers-color-scheme:dark){{{rules}}}"


def _add_element(root: ElementTree.Element, shape: Shape) -> None:
    values: dict[str, float]
    more: dict[str, str] = {}
    if isinstance(shape, Rect):
        values = {"x": shape.x, "y": shape.y, "width": shape.width, "height": shape.height}
        colors = {"fill": shape.fill, "stroke": shape.stroke}
        if shape.stroke:
            values["stroke-width"] = OUTLINE
        if shape.dashed:
            more["stroke-dasharray"] = f"{DASH:g}"
    elif isinstance(shape, Line):
        values = {"x1": shape.x1, "y1": shape.y1, "x2": shape.x2, "y2": shape.y2}
        values["stroke-width"] = shape.width
        colors = {"stroke": shape.stroke}
    elif isinstance(shape, Area):
        values = {}
        colors = {"fill": shape.fill}
        more["points"] = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
    else:
        values = {"x": shape.x, "y": shape.y, "font-size": shape.size}
        colors = {"fill": shape.fill}
        more["text-anchor"] = shape.anchor
        if shape.bold:
            more["font-weight"] = "bold"
    colors = {what: color for what, color in colors.items() if color}
    tag = "polygon" if isinstance(shape, Area) else type(shape).__name__.lower()
    element = ElementTree.SubElement(
        root,
        tag,
        {"class": " ".join(f"{what[0]}-{color}" for what, color in colors.items())}
        | {what: COLORS[color].light for what, color in colors.items()}
        | {name: f"{round(value, 2):g}" for name, value in values.items()}
        | more,
    )
    if isinstance(shape, Text):
        element.text = _clean(shape.text)
    elif isinstance(shape, Rect | Area) and shape.about:
        ElementTree.SubElement(element, "title").text = _clean(shape.about)


# ---- PNG


def _save_png(drawing: Drawing, path: Path) -> None:
    # What takes a second to import, and may not be there.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / _DPI, drawing.height / _DPI), dpi=2 * _DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.set_axis_off()
    for shape in drawing.shapes:
        _add_artist(axes, shape)
    figure.savefig(path, format="png", facecolor=COLORS["paper"].light)


def _add_artist(axes: Any, shape: Shape) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Polygon, Rectangle

    point = 72 / _DPI  # matplotlib's measure of text and lines, in pixels
    if isinstance(shape, Rect):
        edge = COLORS[shape.stroke].light if shape.stroke else "none"
        axes.add_patch(
            Rectangle(
                (shape.x, shape.y),
                shape.width,
                shape.height,
                facecolor=COLORS[shape.fill].light,
                edgecolor=edge,
                linewidth=OUTLINE * point,
                linestyle=(0, (DASH / OUTLINE,) * 2) if shape.dashed else "solid",
            )
        )
    elif isinstance(shape, Line):
        axes.add_line(
            Line2D(
                (shape.x1, shape.x2),
                (shape.y1, shape.y2),
                color=COLORS[shape.stroke].light,
                linewidth=shape.width * point,
                solid_capstyle="butt",
            )
        )
    elif isinstance(shape, Area):
        axes.add_patch(Polygon(shape.points, facecolor=COLORS[shape.fill].light, edgecolor="none"))
    else:
        axes.text(
            shape.x,
            shape.y,
            shape.text,
            size=shape.size * point,
            color=COLORS[shape.fill].light,
            horizontalalignment=_ALIGNMENTS[shape.anchor],
            verticalalignment="baseline",
            weight="bold" if shape.bold else "normal",
            parse_math=False,
        )
