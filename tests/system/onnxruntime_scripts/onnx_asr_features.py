"""Makes the features of speech models from a noise with onnx-asr's preprocessors, after resampling it."""

import json

import numpy as np
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
from onnx_asr.preprocessors.resampler import Resampler

noise = np.random.default_rng(0).standard_normal((2, 4000)).astype(np.float32)
sound, lengths = Resampler(16_000, {})(noise, np.array([4000, 3000], np.int64), 8_000)
texts, numbers = [f"{sound.shape} {lengths.tolist()}"], sound[:, :8].ravel().tolist()
for name in ("kaldi", "nemo80", "gigaam_v3"):
    features, counts = OnnxPreprocessor(name, {})(sound, lengths)
    texts.append(f"{name} {features.shape} {counts.tolist()}")
    numbers += [float(features.mean()), float(features.std()), *features[:, :4, :4].ravel().tolist()]
print(json.dumps({"texts": texts, "numbers": numbers}))
