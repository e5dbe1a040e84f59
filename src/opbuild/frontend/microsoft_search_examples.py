"""The attributes of the small searches of ONNX Runtime: decoders and encoders with one layer, of one head.

A token's successor is the likeliest; keys and values are kept, as a search wants them, and nothing attends to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

_GPT_DECODER = """
decoder (int32[batch, length] input_ids, int32[batch, length] position_ids, int32[batch, total] attention_mask,
         FLOAT[2, batch, 1, past, 8] past_0)
     => (FLOAT[batch, length, 8] logits, FLOAT[2, batch, 1, total, 8] present_0) {
    logits = Gather(next, input_ids)
    axes = Constant <value_ints = [0, 2]> ()
    new = Unsqueeze(logits, axes)
    both = Concat <axis = 0> (new, new)
    present_0 = Concat <axis = 3> (past_0, both)
}
"""
_DECODER = """
decoder (int32[batch, 1] input_ids, MASK FLOAT[batch, 1, past, 8] past_key_self_0,
         FLOAT[batch, 1, past, 8] past_value_self_0, FLOAT[batch, 1, source, 8] past_key_cross_0,
         FLOAT[batch, 1, source, 8] past_value_cross_0)
     => (FLOAT[batch, 1, 8] logits, FLOAT[batch, 1, total, 8] present_key_self_0,
         FLOAT[batch, 1, total, 8] present_value_self_0) {
    logits = Gather(next, input_ids)
    axes = Constant <value_ints = [1]> ()
    new = Unsqueeze(logits, axes)
    present_key_self_0 = Concat <axis = 2> (past_key_self_0, new)
    present_value_self_0 = Concat <axis = 2> (past_value_self_0, new)
}
"""
_T5_ENCODER = """
encoder (int32[batch, source] encoder_input_ids, int32[batch, source] encoder_attention_mask)
     => (FLOAT[batch, 1, source, 8] present_key_cross_0, FLOAT[batch, 1, source, 8] present_value_cross_0) {
    states = Gather(next, encoder_input_ids)
    axes = Constant <value_ints = [1]> ()
    present_key_cross_0 = Unsqueeze(states, axes)
    present_value_cross_0 = Unsqueeze(states, axes)
}
"""
_WHISPER_ENCODER = """
encoder (FLOAT[batch, 4, frames] encoder_input_ids, int32[batch, begun] decoder_input_ids)
     => (FLOAT[batch, begun, 8] logits, FLOAT[batch, frames, 8] encoder_hidden_states,
         FLOAT[batch, 1, begun, 8] present_key_self_0, FLOAT[batch, 1, begun, 8] present_value_self_0,
         FLOAT[batch, 1, frames, 8] present_key_cross_0, FLOAT[batch, 1, frames, 8] present_value_cross_0) {
    frames = Transpose <perm = [0, 2, 1]> (encoder_input_ids)
    encoder_hidden_states = Concat <axis = 2> (frames, frames)
    logits = Gather(next, decoder_input_ids)
    axes = Constant <value_ints = [1]> ()
    present_key_self_0 = Unsqueeze(logits, axes)
    present_value_self_0 = Unsqueeze(logits, axes)
    present_key_cross_0 = Unsqueeze(encoder_hidden_states, axes)
    present_value_cross_0 = Unsqueeze(encoder_hidden_states, axes)
}
"""


class _Graph:
    """A graph, once the element type is known of its values and of its table of successors."""

    def __init__(self, text: str, mask: str = "") -> None:
        self.text = text.replace("MASK", mask)

    def __call__(self, dtype: str) -> onnx.GraphProto:
        graph = parser.parse_graph(self.text.replace("FLOAT", "float" if dtype == "float32" else dtype))
        graph.initializer.append(numpy_helper.from_array(np.eye(8, k=1, dtype=dtype), "next"))
        return graph


_ENDS = {"eos_token_id": 7, "pad_token_id": 0}
_STARTS = {**_ENDS, "decoder_start_token_id": 1}

GPT: dict[str, Any] = {**_ENDS, "decoder": _Graph(_GPT_DECODER)}
T5: dict[str, Any] = {
    **_STARTS,
    "model_type": 1,
    "encoder": _Graph(_T5_ENCODER),
    "decoder": _Graph(_DECODER, "int32[batch, source] encoder_attention_mask,"),
}
WHISPER: dict[str, Any] = {
    **_STARTS,
    "model_type": 2,
    "encoder": _Graph(_WHISPER_ENCODER),
    "decoder": _Graph(_DECODER),
    "no_timestamps_token_id": 2,
    "start_of_lm_token_id": 3,
    "translate_token_id": 4,
    "transcribe_token_id": 5,
    "beginning_timestamp_token_id": 6,
}
