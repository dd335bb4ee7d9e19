"""CUDA extensions that people use, moved by `init`, built and compared with references on a GPU."""
