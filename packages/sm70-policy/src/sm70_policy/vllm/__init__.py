"""The vLLM side: the plug-in, the adapters for vLLM's versions, the report of what was chosen."""
