"""Names of published tensors: renamed, left out on purpose, or left over."""
