"""Layouts read off live inference engines, through the engines' own loaders, and off live trainers.

`weightcast.adapters.vllm` reads vLLM models, `weightcast.adapters.sglang` SGLang's;
`weightcast.adapters.megatron` reads models of Megatron-core, `weightcast.adapters.deepspeed` engines of
DeepSpeed. Each imports its engine or trainer only when used. `catalog` says what is published; the other
folders are what adapters share:

- `engine`: one worker of an engine that runs, in an update
- `recording`: what a loader does with published tensors
- `boxes`: strided views and pieces as boxes of tensors
- `live`: the layout that comes of both, and what follows an update
- `naming`: names that are renamed, left out, or left over
"""
