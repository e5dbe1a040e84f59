"""The part of a source that counts in a release: the code without comments and docstrings."""

from __future__ import annotations

import io
import tokenize
from functools import lru_cache


@lru_cache(maxsize=1024)
def code(source: bytes) -> bytes:
    """Return a source without its dead parts: comments, blank lines, docstrings and other strings that stand alone.

    The text that is left does not depend on the release of Python that finds these.
    """
    text = source.decode()
    lines = io.StringIO(text).readlines()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start[0] - 1, token.start[1]
        if token.type == tokenize.COMMENT:
            lines[row] = lines[row][:column].rstrip() + "\n"
        elif token.type == tokenize.NL and not lines[row].strip():
            lines[row] = ""
        elif token.type == tokenize.NEWLINE:
            if {each.type for each in statement} == {tokenize.STRING}:
                first, indent = statement[0].start[0] - 1, statement[0].start[1]
                lines[first : row + 1] = [" " * indent + "pass\n", *[""] * (row - first)]
            statement = []
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.NL):
            statement.append(token)
    return "".join(lines).encode()
