"""fixes: one module per variant; `kinetoscope.variants.registry` loads them."""
