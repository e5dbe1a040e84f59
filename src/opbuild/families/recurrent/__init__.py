"""Kernel family ``recurrent``: all steps of a simple recurrent layer, of gated recurrent units, or of an LSTM."""
