"""Findings: the faults of a run.

`rule` registers the rules of the package `rules`, a module and a page per kind. They read the `evidence` of a run and
yield diagnoses, which `diagnosis` assesses. `savings` is the only source of a saving, `confidence` that of a
confidence. `judgement` is the entry point, `ranking` the order of findings, and `explanations` reads the pages.
"""
