"""vLLM engines that run, updated where they run."""
