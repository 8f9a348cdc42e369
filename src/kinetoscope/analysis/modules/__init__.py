"""Time, FLOPs and memory by torch module: `calls` finds whose each moment is, `module_rows` and `costs` sum it up."""
