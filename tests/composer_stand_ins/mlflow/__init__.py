"""Stands in for MLflow: `import composer` imports it."""
