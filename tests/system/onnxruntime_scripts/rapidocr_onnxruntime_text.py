"""Reads two lines of text from a picture with rapidocr-onnxruntime."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

picture = Image.new("RGB", (320, 96), "white")
draw = ImageDraw.Draw(picture)
font = ImageFont.load_default(26)
draw.text((12, 10), "Hello operator", fill="black", font=font)
draw.text((12, 54), "Total 42.50 EUR", fill="black", font=font)
found, _ = RapidOCR(det_limit_side_len=64)(np.array(picture), use_cls=False)
texts, scores = [text for _, text, _ in found], [round(float(score), 2) for *_, score in found]
print(json.dumps({"texts": texts, "numbers": scores}))
