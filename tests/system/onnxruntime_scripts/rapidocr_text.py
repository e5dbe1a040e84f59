"""Reads two lines of text from a picture with rapidocr."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr import RapidOCR

picture = Image.new("RGB", (320, 96), "white")
draw = ImageDraw.Draw(picture)
font = ImageFont.load_default(26)
draw.text((12, 10), "Hello operator", fill="black", font=font)
draw.text((12, 54), "Total 42.50 EUR", fill="black", font=font)
reader = RapidOCR(params={"Global.log_level": "error", "Det.limit_side_len": 64})
found = reader(np.array(picture), use_cls=False)
scores = [round(float(score), 2) for score in found.scores]
print(json.dumps({"texts": list(found.txts), "numbers": scores}))
