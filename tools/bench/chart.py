"""Style and parts of the benchmark's figures. Without matplotlib, importing this module exits with status 3."""

import math
import os
import sys

try:
    import matplotlib
except ImportError:
    # Debian's packages are for Debian's interpreter, which may not be the first on the path.
    if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3") and not os.environ.get("SRJIT_PLOT"):
        os.environ["SRJIT_PLOT"] = "1"
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("plot: no matplotlib for python3 (Debian: apt-get install python3-matplotlib)", file=sys.stderr)
    sys.exit(3)

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import ListedColormap  # noqa: E402, F401
from matplotlib.patheffects import withStroke  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter  # noqa: E402

# Colours of M. Okabe and K. Ito, "Color Universal Design" (2008), which is safe for colour-blind readers.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")
GREY, DARK = "#8c8c8c", "#222222"
HALO = withStroke(linewidth=3, foreground="white")
# Other designs; blue, green and sky blue are sr-jit's tiers.
OTHERS = [RED, PURPLE, ORANGE, "#b8a000", "#7a5230", DARK]

plt.rcParams.update({
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#b0b0b0", "axes.axisbelow": True,
    "grid.color": "#e4e4e4", "grid.linewidth": 0.8, "xtick.color": "#555555", "ytick.color": DARK,
    "axes.labelcolor": "#555555", "svg.fonttype": "none", "svg.hashsalt": "sr-jit", "figure.dpi": 110,
})


def seconds_text(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:,.0f} {unit}"
    return ""


def count_text(value, _=None):
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def seconds_axis(axis):
    axis.set_major_formatter(FuncFormatter(lambda value, _: seconds_text(value)))
    axis.set_minor_formatter(NullFormatter())


def log_log(axes):
    axes.set_xscale("log")
    axes.set_yscale("log")
    seconds_axis(axes.yaxis)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    grid(axes, "both")


def title(figure, text):
    figure.suptitle(text, x=0.01, ha="left", fontsize=13, weight="bold")


def quantile(values, part):
    """A quantile by linear interpolation between adjacent values, as quantileOf() of gpu_report.h."""
    values = sorted(values)
    place = part * (len(values) - 1)
    below = int(place)
    return values[below] + (values[min(below + 1, len(values) - 1)] - values[below]) * (place - below)


def spread(values):
    return quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75)


def grid(axes, axis):
    axes.grid(True, axis=axis, which="major")
    axes.tick_params(length=0, which="both")


def machine_text(report):
    machine = report["machine"]
    name = machine.get("device_name") or machine.get("found", {}).get("processor", machine["device"])
    return f"{name.split(',')[0]}, {machine['host_cores']} host threads, {machine['date'][:10]}"


def bars(axes, rows, heading, log=True):
    """Horizontal bars of seconds, the longest on top: (label, seconds, colour, quartiles or None, hollow)."""
    rows = sorted(rows, key=lambda row: row[1])
    least = min(row[1] for row in rows)
    for y, (_, value, colour, quartiles, hollow) in enumerate(rows):
        axes.barh(y, value, height=0.66, color="white" if hollow else colour, edgecolor=colour, linewidth=1.2)
        end = value
        if quartiles:
            axes.plot(quartiles, [y, y], color=DARK, linewidth=1.4, solid_capstyle="butt")
            end = max(value, quartiles[1])
        axes.annotate(seconds_text(value), (end, y), (4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    if log:
        axes.set_xscale("log")
        axes.set_xlim(least / 3, max(row[1] for row in rows) * 9)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    seconds_axis(axes.xaxis)
    axes.set_title(heading)
    grid(axes, "x")


def label_lines(axes, ends):
    """Labels lines at their right ends, without overlaps: (x, y, text, colour)."""
    height = axes.get_figure().get_size_inches()[1] * axes.get_position().height * 72
    to_points = lambda y: axes.transAxes.inverted().transform(axes.transData.transform((1, y)))[1] * height  # noqa: E731
    place = -math.inf
    for x, y, text, colour in sorted(ends, key=lambda end: end[1]):
        here = to_points(y)
        place = max(here, place + 11)
        axes.annotate(text, (x, y), (5, place - here), textcoords="offset points", va="center", fontsize=9, color=colour)
