"""A placeholder for MLflow, which `import composer` imports."""
