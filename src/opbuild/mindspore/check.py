"""``run_check``: says whether operators can be built and run here."""

from __future__ import annotations

from opbuild.errors import OpbuildError
from opbuild.mindspore import ops
from opbuild.mindspore.context import get_context
from opbuild.mindspore.tensor import Tensor
from opbuild.version import __version__


def run_check() -> None:
    """Multiply two tensors and print whether the product is right."""
    print(f"opbuild version: {__version__}")
    try:
        product = ops.Mul()(Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])).asnumpy().tolist()
    except OpbuildError as error:
        print(f"opbuild running check failed.\n{error}")
        return
    if product == [4.0, 10.0, 18.0]:
        print("The result of multiplication calculation is correct, opbuild has been installed on platform "
              f"[{get_context('device_target')}] successfully!")  # fmt: skip
    else:
        print(f"opbuild running check failed.\nThe result of multiplication is {product}, not [4.0, 10.0, 18.0].")
