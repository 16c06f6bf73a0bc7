"""The cells beside the LSTM, each an `hk.RNNCore` with its equation and source, usable alone."""
