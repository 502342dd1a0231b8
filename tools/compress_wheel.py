"""Compress wheels once more, with Zopfli, whose deflated data any zip reader takes: `tools/compress_wheel.py FOLDER`.

It takes a minute, and makes a wheel 3 % smaller than the best level of zlib.
"""

import sys
import zipfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import zopfli.zlib

HEADER, CHECKSUM = 2, 4     # the bytes of a zlib stream around its deflated data


class Compressor:
    """The interface that `zipfile` expects of a compressor."""

    def __init__(self) -> None:
        self.data = bytearray()

    def compress(self, data: bytes) -> bytes:
        """Keep the data for `flush`."""
        self.data += data
        return b""

    def flush(self) -> bytes:
        """Return all data, compressed."""
        return deflated(bytes(self.data))


@cache      # wheels for several CPythons share most files
def deflated(data: bytes) -> bytes:
    """Compress the data."""
    return zopfli.zlib.compress(data)[HEADER:-CHECKSUM]


def compress(wheel: Path) -> None:
    """Replace a wheel by one with the same files."""
    smaller = wheel.with_suffix(".smaller")
    with (patch.object(zipfile, "_get_compressor", lambda *_: Compressor()), zipfile.ZipFile(wheel) as old,
          zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as new):
        for info in old.infolist():
            new.writestr(info, old.read(info), zipfile.ZIP_DEFLATED)
    smaller.replace(wheel)


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.whl")):
        compress(path)
        print(path.name, path.stat().st_size, "bytes")
