"""Stands in for MosaicML's client: `import composer` imports it."""
