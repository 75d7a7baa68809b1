"""LoRA adapters that live vLLM engines take into slots by name, beside their base model.

- `paths`: which adapter and version a path means: vLLM's prefix cache goes by paths
- `build`: vLLM's own form of an adapter that has arrived, and whether it fits an engine
- `slots`: what one worker holds; two versions are never mixed
- `steps`: what a trainer asks of all workers of an engine
- `client`: an engine's slot as its trainer sees it
"""
