"""Runs scripts one after the other in one process, with whatever ``import mindspore`` finds.

``run_all.py NAME...``: what each printed, or the traceback that ended it, stands below a line with its name.
"""

import runpy
import sys
import traceback
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import mindspore as ms
import numpy as np

for _ in range(2):
    try:
        ms.Tensor(np.zeros(2, np.float32)).reshape((1, 2))
    except SystemError:  # the first operator of a process fails where numpy is newer than MindSpore
        continue

for name in sys.argv[1:]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    printed = StringIO()
    with redirect_stdout(printed):
        try:
            runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")
        except Exception:
            print(traceback.format_exc())
    print(f"#### {name}\n{printed.getvalue()}", end="")
