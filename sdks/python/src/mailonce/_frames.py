"""Server-sent events. An incomplete frame is dropped, because the stream resumes from the cursor before it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from ._error import no_answer

MAX_LINE_CHARS = 4_000_000


class Frames:
    """Reads pieces of a stream, gives `(id, data)` for each frame. Lines end as the format says and nowhere else."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._id: str | None = None
        self._data: str | None = None

    def feed(self, piece: bytes) -> Iterator[tuple[str | None, str | None]]:
        self._rest += self._decoder.decode(piece)
        # A CR at the end may be the first half of a CRLF.
        *lines, self._rest = re.split(r"\r\n|\n|\r(?!\Z)", self._rest)
        if len(self._rest) > MAX_LINE_CHARS:
            raise no_answer("a line of the stream does not end")
        for line in lines:
            if line:
                self._line(line)
                continue
            if self._id is not None or self._data is not None:
                yield self._id, self._data
            self._id = self._data = None

    def _line(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "data":
            self._data = value if self._data is None else f"{self._data}\n{value}"
