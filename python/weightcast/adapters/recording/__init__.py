"""What an engine's loader does with published tensors, recorded by feeding it marked ones."""
