"""Recipes of recurrent stacks: GRU, LSTM and RNN, in one or two directions, with or without a linear layer behind them."""
