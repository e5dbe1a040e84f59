"""Writes the checkpoints in this folder with MindSpore itself: ``python make_checkpoints.py`` where it is installed."""

from pathlib import Path

import mindspore as ms
import numpy as np

TYPES = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
HERE = Path(__file__).resolve().parent


def main() -> None:
    """Write a file with every element type, one with a checksum, and one in the other format."""
    kinds = {
        f"kind.{name}": ms.Parameter(ms.Tensor(np.arange(6).reshape(2, 3) % 4, getattr(ms, name)), name=f"kind.{name}")
        for name in TYPES.split()
    }
    kinds["scalar"] = ms.Parameter(ms.Tensor(2.5, ms.float32), name="scalar")
    more = {"epoch": 3, "rate": 0.5, "done": True, "who": "M\u00fcller"}
    ms.save_checkpoint(kinds, str(HERE / "kinds.ckpt"), append_dict=more)
    ms.save_checkpoint(kinds, str(HERE / "checksum.ckpt"), crc_check=True)
    ms.save_checkpoint(kinds, str(HERE / "kinds.safetensors"), format="safetensors")
    ms.save_checkpoint(
        {"secret": kinds["scalar"]}, str(HERE / "encrypted.ckpt"), enc_key=b"0123456789abcdef", enc_mode="AES-GCM"
    )
    for path in HERE.glob("*.[cs]*t*"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
