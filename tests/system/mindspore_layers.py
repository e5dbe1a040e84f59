# ruff: noqa: E501 - cases stay on one line
"""Layers of the comparison with the real MindSpore that take several inputs, or were checked later than ``LAYERS``.

A key is what makes the layer, followed after two blanks and ``#`` by how it is called if that is not ``net(x, y, ...)``.
Inputs are written as in ``mindspore_cases``; parameters get the same values in both.
"""

LAYER_CALLS: dict[str, tuple[str, ...]] = {
    # Recurrent
    "nn.LSTM(4, 3)": ("f32:5,2,4",),
    "nn.LSTM(4, 3, 2)  # net(x, (y, z))": ("f32:5,2,4", "f32:2,2,3", "f32:2,2,3"),
    "nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)": ("f32:2,5,4",),
    "nn.LSTM(4, 3, 2, True, True, 0.0, True)  # net(x, (y, z), w + 1)": ("f32:2,5,4", "f32:4,2,3", "f32:4,2,3", "i32:2n"),
    "nn.LSTM(4, 3, has_bias=False)": ("f32:5,2,4",),
    "nn.LSTM(4, 3)  # net(x, None, y + 1)": ("f32:5,2,4", "i32:2n"),
    "nn.GRU(4, 3)": ("f32:5,2,4",),
    "nn.GRU(4, 3, 2, bidirectional=True)": ("f32:5,2,4", "f32:4,2,3"),
    "nn.GRU(4, 3, batch_first=True, has_bias=False)  # net(x, y, z + 1)": ("f32:2,5,4", "f32:1,2,3", "i32:2n"),
    "nn.RNN(4, 3)": ("f32:5,2,4",),
    "nn.RNN(4, 3, 2, nonlinearity='relu', bidirectional=True)": ("f32:5,2,4",),
    "nn.RNN(4, 3, batch_first=True)  # net(x, seq_length=y + 1)": ("f32:2,5,4", "i32:2n"),
    "nn.LSTMCell(4, 3)  # net(x, (y, z))": ("f32:2,4", "f32:2,3", "f32:2,3"),
    "nn.LSTMCell(4, 3, has_bias=False)  # net(x, (y, z))": ("f32:2,4", "f32:2,3", "f32:2,3"),
    "nn.GRUCell(4, 3)": ("f32:2,4", "f32:2,3"),
    "nn.RNNCell(4, 3)": ("f32:2,4", "f32:2,3"),
    "nn.RNNCell(4, 3, nonlinearity='relu')": ("f32:2,4", "f32:2,3"),
    # Attention and transformers
    "nn.MultiheadAttention(6, 2)  # net(x, x, x)": ("f32:5,2,6",),
    "nn.MultiheadAttention(6, 2, batch_first=True)  # net(x, y, y, average_attn_weights=False)": ("f32:2,5,6", "f32:2,4,6"),
    "nn.MultiheadAttention(6, 3, kdim=4, vdim=5)": ("f32:3,2,6", "f32:4,2,4", "f32:4,2,5"),
    "nn.MultiheadAttention(6, 2, has_bias=False)  # net(x, x, x, attn_mask=y, need_weights=False)": ("f32:4,2,6", "b:4,4"),
    "nn.MultiheadAttention(6, 2)  # net(x, x, x, key_padding_mask=ops.concat((y, ops.zeros((2, 1), ms.bool_)), 1))": ("f32:4,2,6", "b:2,3"),
    "nn.MultiheadAttention(6, 2)  # net(x, x, x, attn_mask=y)": ("f32:4,2,6", "f32:4,4,4"),
    "nn.MultiheadAttention(6, 2, add_bias_kv=True)  # net(x, x, x)": ("f32:4,2,6",),
    "nn.MultiheadAttention(6, 2)  # net(x, x, x) #1": ("f32:4,6",),
    "nn.TransformerEncoderLayer(6, 2, 8)": ("f32:4,2,6",),
    "nn.TransformerEncoderLayer(6, 2, 8, activation='gelu', batch_first=True, norm_first=True)": ("f32:2,4,6", "f32:4,4"),
    "nn.TransformerDecoderLayer(6, 2, 8)": ("f32:4,2,6", "f32:3,2,6"),
    "nn.TransformerDecoderLayer(6, 2, 8, norm_first=True, batch_first=True)  # net(x, y, tgt_mask=z)": ("f32:2,4,6", "f32:2,3,6", "f32:4,4"),
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8), 2)": ("f32:4,2,6",),
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8), 2, nn.LayerNorm((6,)))": ("f32:4,2,6",),
    "nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8), 2)": ("f32:4,2,6", "f32:3,2,6"),
    "nn.Transformer(6, 2, 1, 2, 8)": ("f32:4,2,6", "f32:3,2,6"),
    "nn.Transformer(6, 2, 1, 1, 8, batch_first=True)": ("f32:2,4,6", "f32:2,3,6"),
}  # fmt: skip
