"""Layouts read off live inference engines, through the engines' own loaders.

`weightcast.adapters.vllm` reads vLLM models, `weightcast.adapters.sglang` SGLang's. Each adapter imports its engine only when used.
"""
