"""Time, FLOPs and memory by torch module: `calls` assigns times to modules, `module_rows` and `costs` sum them up."""
