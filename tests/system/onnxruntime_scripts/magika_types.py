"""Tells what kinds of files some bytes are with magika."""

import json

from magika import Magika

FILES = [
    b"def f(x):\n    return x + 1\n\nprint(f(3))\n" * 4,
    b"<html><body><p>Hello</p></body></html>" * 3,
    b"SELECT a, b FROM t WHERE c = 1;\n" * 9,
    bytes(range(256)) * 4,
]
found = [Magika().identify_bytes(each) for each in FILES]
print(json.dumps({"texts": [each.output.label for each in found], "numbers": [each.score for each in found]}))
