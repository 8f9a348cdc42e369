"""A placeholder for MosaicML's client, which `import composer` imports."""
