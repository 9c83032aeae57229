"""How a step runs: engines, CUDA graphs, compilation, precision, memory layout."""
