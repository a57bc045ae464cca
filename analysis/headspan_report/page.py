"""What the pages have in common: templates, and images of figures for wide and narrow screens, light and dark. A page
loads nothing and needs no network."""
import colorsys
import json
import re
from dataclasses import dataclass
from importlib import resources
from urllib.parse import quote

import jinja2
import matplotlib

from .figures.axes import NARROW, WIDE, style, to_svg

PAPER = {"title": "Linear Predictability of Attention Heads in Large Language Models", "number": "arXiv 2603.13314",
         "address": "https://arxiv.org/abs/2603.13314"}


@dataclass
class Picture:
    """One figure, as addresses of images."""
    wide: str
    narrow: str


def environment():
    loader = jinja2.PackageLoader("headspan_report", "templates")
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                              undefined=jinja2.StrictUndefined)
    made.globals.update(paper=PAPER, style=template_text("page.css"))
    return made


def template_text(name):
    return (resources.files("headspan_report") / "templates" / name).read_text(encoding="utf-8")


def plot_library():
    """Returns (styles, script) of uPlot, which draws the interactive charts, with its licence."""
    texts = {name: template_text(f"uPlot/{name}") for name in ("LICENSE", "uPlot.min.css", "uPlot.iife.min.js")}
    return texts["uPlot.min.css"], f"/*!\n{texts['LICENSE']}*/\n{texts['uPlot.iife.min.js']}"


def as_json(value):
    """Returns JSON for a <script>, in which nothing ends the element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def picture(draw):
    """Calls draw() twice, with wide and narrow rcParams."""
    images = []
    for width in (WIDE, NARROW):
        with matplotlib.rc_context(style(width)):
            images.append(as_image(draw()))
    return Picture(*images)


def as_image(figure):
    """Returns an SVG as the address of an <img>, which may be put in double quotes: without a background, and with the
    colours for a dark page."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    svg = smaller(to_svg(figure))
    svg = svg.replace("</style>", f"{dark_style(svg)}</style>", 1)
    return "data:image/svg+xml," + quote(svg, safe="/:=;,()!*+?'@$|[]{}^~")


def smaller(svg):
    """Returns an equal SVG with fewer characters and blanks, which an address must escape. Coordinates keep two
    decimals."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg).replace("xlink:href", "href").replace("DejaVuSans", "D")
    svg = re.sub(r' (d|x|y)="([^"]*)"', lambda found: f' {found[1]}="{shorter(found[2])}"', svg)
    svg = re.sub(r' style="[^"]*"', lambda style: re.sub(r"([:;]) ", r"\1", style[0]), svg)
    return re.sub(r"\s+", " ", re.sub(r">\s+<", "><", svg)).replace('"', "'")


def shorter(path):
    """Shortens the data of a path, or a number."""
    path = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), path)
    return re.sub(r",?([A-Za-z]),?", r"\1", re.sub(r"\s+", ",", path.strip()))


def dark_style(svg):
    """Returns the CSS rules for an SVG on a dark page; text has no colour of its own."""
    rules = ["svg{fill:" + on_dark("#000000") + "}"]
    for name, colour in sorted(set(re.findall(r"(fill|stroke):(#[0-9a-f]{6})", svg))):
        rules.append(f'[style*="{name}:{colour}"]{{{name}:{on_dark(colour)}!important}}')
    return "@media screen and (prefers-color-scheme:dark){" + "".join(rules) + "}"


def on_dark(colour):
    """Inverts grey, and brightens colours."""
    red, green, blue = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    lightness = 0.9 - 0.8 * lightness if saturation == 0 else 0.4 + 0.65 * lightness
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lightness, 0.8 * saturation))
