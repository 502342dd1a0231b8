"""Flame graphs as SVG without scripts: a frame is as wide as the time spent in it."""

# tests: tests/debug/test_profile.py
from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from zlib import crc32

WIDTH, HEIGHT = 1200.0, 20      # of the picture, and of a row
CHARACTER = 6.8                 # the width of one character
NARROWEST = 0.2                 # narrower frames are invisible, and are left out


class Frame:
    """A name in the stack, the time spent in it excluding inner frames, and its inner frames."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.own = 0
        self.frames: dict[str, Frame] = {}

    def inside(self, name: str) -> Frame:
        """Return the inner frame of this name, and create it if needed."""
        if name not in self.frames:
            self.frames[name] = Frame(name)
        return self.frames[name]

    def laid_out(self, x: float, depth: int, totals: dict[Frame, int]) -> Iterator[tuple[Frame, float, int]]:
        """Yield this frame and its inner frames, with the time to the left of each and its depth."""
        yield self, x, depth
        for frame in self.frames.values():
            yield from frame.laid_out(x, depth + 1, totals)
            x += totals[frame]

    def sum_up(self, totals: dict[Frame, int]) -> int:
        """Return the time spent in this frame, and note the time of every frame in `totals`."""
        totals[self] = self.own + sum(frame.sum_up(totals) for frame in self.frames.values())
        return totals[self]


def draw(root: Frame, in_time: Callable[[float], str]) -> str:
    """Draw a stack as SVG. Pointing at a frame shows its name, its time, and its share of the whole."""
    totals: dict[Frame, int] = {}
    whole = root.sum_up(totals) or 1
    placed = list(root.laid_out(0, 0, totals))
    height = HEIGHT * (1 + max(depth for _, _, depth in placed))
    shapes = [_rectangle(frame.name, x / whole * WIDTH, totals[frame] / whole * WIDTH, depth * HEIGHT,
                         f"{frame.name}: {in_time(totals[frame])}, {totals[frame] / whole:.1%}")
              for frame, x, depth in placed if frame is root or totals[frame] / whole * WIDTH >= NARROWEST]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height}" width="{WIDTH:g}" '
            f'height="{height}" font-family="monospace" font-size="11">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{"".join(shapes)}</svg>\n')


def _rectangle(name: str, x: float, width: float, y: int, title: str) -> str:
    room = int((width - 6) / CHARACTER)
    shown = name if len(name) <= room else f"…{name[len(name) - room + 1:]}" if room > 2 else ""
    return (f'<g><title>{escape(title)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{HEIGHT - 1}" '
            f'fill="{_colour(name)}"/><text x="{x + 3:.2f}" y="{y + 14}">{escape(shown)}</text></g>\n')


def _colour(name: str) -> str:
    """Return a warm colour for an operator, a cool one for a backward pass. It depends only on the name."""
    shade = crc32(name.encode()) % 40
    return f"hsl({200 + shade if name.endswith('Backward') else 20 + shade}, 85%, 72%)"
