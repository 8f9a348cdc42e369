"""fixes: a module for each variant, named like it. They are loaded by `kinetoscope.variants.registry`."""
