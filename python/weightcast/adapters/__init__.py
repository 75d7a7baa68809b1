"""Layouts read off live inference engines, through the engines' own loaders.

`weightcast.adapters.vllm` reads vLLM models. Each adapter imports its engine only when used.
"""
