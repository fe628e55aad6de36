"""Pictures are packed without a pixel changed."""

from __future__ import annotations

import struct
import zlib

from rackmodel.report.png import SIGNATURE, packed


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _picture(level: int, parts: int) -> bytes:
    rows = b"".join(b"\0" + bytes((x * y) % 7 for x in range(256)) for y in range(256))  # gray, 8 bit, no filter
    stream = zlib.compress(rows, level)
    cuts = [stream[i * len(stream) // parts : (i + 1) * len(stream) // parts] for i in range(parts)]
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", 256, 256, 8, 0, 0, 0, 0))
    return SIGNATURE + head + b"".join(_chunk(b"IDAT", cut) for cut in cuts) + _chunk(b"IEND", b"")


def test_a_picture_in_any_number_of_parts_is_packed_into_one_of_the_same_pixels() -> None:
    assert packed(_picture(1, 3)) == _picture(9, 1)
    assert len(packed(_picture(0, 1))) < len(_picture(0, 1)) / 10
